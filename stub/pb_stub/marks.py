"""The mark of a stub: an environment variable that identifies the processes it has started.

Programs inherit it with the environment. A process that is forked and starts no program has the
memory that its stub was started with. So a forked stub overwrites the template's mark there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Iterator

_VARIABLE = "NEREID_STUB"

#: How long killed processes may take to end; a process that hangs in the kernel cannot be waited
#: for.
_LIMIT = 5.0
_PAUSE = 0.005


def area() -> tuple[int, int] | None:
    """Return address and size of this process's mark; None without a mark, or if it is unknown."""
    sought = _VARIABLE.encode() + b"="
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()  # fields 3 and on, see title.area
        with open("/proc/self/environ", "rb") as environ:
            text = environ.read()
        start = int(fields[50 - 3])
    except (OSError, ValueError, IndexError):
        return None
    at = 0
    for variable in text.split(b"\0"):
        if variable.startswith(sought):
            return start + at + len(sought), len(variable) - len(sought)
        at += len(variable) + 1
    return None


def write(where: tuple[int, int] | None, mark: str) -> None:
    """Write a new mark for this process, with the length of the old one."""
    import ctypes

    os.environ[_VARIABLE] = mark
    text = mark.encode()
    if where is not None and where[1] == len(text):
        ctypes.memmove(where[0], text, len(text))


def end_all() -> None:
    """Kill the marked processes that all stubs of the supervisor have started.

    For a template whose supervisor ended without shutting it down: if it was killed, it could not
    do this.
    """
    own = os.environ.get(_VARIABLE, "")
    token, dot, _ = own.rpartition(".")
    if not dot:
        return
    sought = f"{_VARIABLE}={token}.".encode()
    spared = f"{_VARIABLE}={own}".encode()  # other templates, which also do this
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        found = list(_marked(sought, spared))
        if not found:
            return
        for pid in found:
            _kill(pid, sought)
        time.sleep(_PAUSE)


def _marked(sought: bytes, spared: bytes) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and _has(int(name), sought, spared):
            yield int(name)


def _has(pid: int, sought: bytes, spared: bytes | None = None) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = environ.read().split(b"\0")
    except OSError:
        return False  # the process belongs to another user, or has ended
    return any(variable.startswith(sought) and variable != spared for variable in variables)


def _kill(pid: int, sought: bytes) -> None:
    """Kill a process, unless (where this is detectable) its number was reused meanwhile."""
    with contextlib.suppress(OSError):
        if not hasattr(os, "pidfd_open"):  # before Python 3.9
            os.kill(pid, signal.SIGKILL)
            return
        fd = os.pidfd_open(pid)
        try:
            if _has(pid, sought):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
