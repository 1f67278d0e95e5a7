"""Libraries of an execution environment, used by this process but not by programs that it starts.

The dynamic linker reads LD_LIBRARY_PATH when a process starts. So after the variable has changed,
the model still loads the environment's libraries, while a program that the model starts, such as a
shell, uses the system's.
"""

from __future__ import annotations

import os

_VARIABLE = "LD_LIBRARY_PATH"

#: The server's value of the variable; "" if the server has none. Absent without an environment.
_OF_THE_SERVER = "NEREID_LIBRARY_PATH"


def keep_libraries() -> None:
    """Let programs started by this process, and their children, search the server's libraries."""
    before = os.environ.pop(_OF_THE_SERVER, None)
    if before:
        os.environ[_VARIABLE] = before
    elif before is not None:
        os.environ.pop(_VARIABLE, None)
