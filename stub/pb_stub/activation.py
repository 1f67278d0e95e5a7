"""The libraries of an execution environment, which are for this process and not for the programs that it starts.

The dynamic linker reads LD_LIBRARY_PATH when a process starts. So what the model loads is still found there when the
variable has been changed, while a program that the model starts, a shell perhaps, gets the libraries of its system.
"""

from __future__ import annotations

import os

_VARIABLE = "LD_LIBRARY_PATH"

#: What the variable is for the server; "": the server has none. Absent: there is no environment.
_OF_THE_SERVER = "NEREID_LIBRARY_PATH"


def keep_libraries() -> None:
    """Have programs that this process starts, and their children, search where those of the server do."""
    before = os.environ.pop(_OF_THE_SERVER, None)
    if before:
        os.environ[_VARIABLE] = before
    elif before is not None:
        os.environ.pop(_VARIABLE, None)
