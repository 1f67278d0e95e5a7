"""The mark of a stub: an environment variable that identifies the processes it has started.

Programs get it with the environment. A process that is forked and starts no program shows the memory that its stub was
started with, so a stub which is forked itself writes its mark over the one of the template there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Iterator

_VARIABLE = "NEREID_STUB"

#: How long killed processes may take to be gone; a process that hangs in the kernel cannot be waited for.
_LIMIT = 5.0
_PAUSE = 0.005


def area() -> tuple[int, int] | None:
    """Where the mark of this process lies, address and size; None if it has none, or that cannot be found out."""
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
    """Give this process a mark of its own, as long as the one that it has."""
    import ctypes

    os.environ[_VARIABLE] = mark
    text = mark.encode()
    if where is not None and where[1] == len(text):
        ctypes.memmove(where[0], text, len(text))


def end_all() -> None:
    """Kill the processes started by all stubs of the supervisor, as far as they have the marks.

    For a template whose supervisor has gone without a word: it may have been killed, and could not do it.
    """
    own = os.environ.get(_VARIABLE, "")
    token, dot, _ = own.rpartition(".")
    if not dot:
        return
    sought = f"{_VARIABLE}={token}.".encode()
    spared = f"{_VARIABLE}={own}".encode()  # templates: they do this too
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
        return False  # it is another user's, or has ended
    return any(variable.startswith(sought) and variable != spared for variable in variables)


def _kill(pid: int, sought: bytes) -> None:
    """Kill a process, unless its number has become another's meanwhile, where that can be told."""
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
