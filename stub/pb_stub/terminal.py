"""The terminal of the server, lent to the debugger of one model at a time: `--dev`.

    breakpoint() ─▶ take: wait for other models' debuggers ─▶ this process group is in the foreground, 0 to 2 lead to
    the terminal ─▶ the debugger talks ─▶ give_back: the server's group is in the foreground again

The stub is of the server's session, so job control does all of it: keys reach the debugger while it has the terminal,
and the server otherwise. A stub that dies meanwhile is noticed by the server, which takes the terminal back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import sys
import time

#: Seconds between two attempts to take the terminal.
_AGAIN = 0.1

#: F_OFD_SETLK, which Python 3.8 does not name. Its locks end with their descriptor, and no earlier: closing another
#: descriptor of the file leaves them.
_OFD_SETLK = 37

_lock = -1  # the descriptor that locks, while the terminal is ours
_saved: list[int] = []  # what 0 to 2 were meanwhile
_server = 0  # the process group that has the terminal next


class NoTerminal(RuntimeError):
    """The server has no terminal that it could lend."""


def held() -> bool:
    """Whether the terminal is this process's."""
    return bool(_saved)


def take() -> None:
    """Take the terminal, and wait while another model's debugger has it. Nothing happens if it is ours."""
    global _lock, _server  # noqa: PLW0603  # a process has one terminal
    if _saved:
        return
    server = os.getpgid(os.getppid())
    _lock = _wait()
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        _unlock()
        raise NoTerminal("breakpoint() was called, and the server was started without a terminal") from None
    try:
        if os.tcgetpgrp(terminal) != server:
            raise NoTerminal("breakpoint() was called, and the server runs in the background of its terminal")
        _foreground(terminal, os.getpgrp())
    except (NoTerminal, OSError):
        os.close(terminal)
        _unlock()
        raise
    _server = server
    _flush()
    _saved[:] = [os.dup(number) for number in range(3)]
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)


def give_back() -> None:
    """Give the terminal back, if it is ours."""
    if not _saved:
        return
    _flush()
    with contextlib.suppress(OSError):  # it has hung up
        _foreground(0, _server)
    for number, fd in enumerate(_saved):
        os.dup2(fd, number)
        os.close(fd)
    _saved.clear()
    _unlock()


def _wait() -> int:
    """Wait until no other debugger has the terminal. The lock is free again when its holder ends, however it does.

    It is on this file, which the server has unpacked for its user alone, so that no other user can take it. Each server
    has a byte, by its number.
    """
    lock = os.open(__file__, os.O_RDWR | os.O_CLOEXEC)
    byte = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, os.getppid(), 1, 0)
    try:
        while True:
            try:
                fcntl.fcntl(lock, _OFD_SETLK, byte)
            except BlockingIOError:
                time.sleep(_AGAIN)
            else:
                return lock
    except BaseException:
        os.close(lock)
        raise


def _unlock() -> None:
    global _lock  # noqa: PLW0603
    if _lock >= 0:
        os.close(_lock)
        _lock = -1


def _foreground(terminal: int, group: int) -> None:
    """Put a process group into the foreground. The signal for background groups that try would stop this one."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
    try:
        os.tcsetpgrp(terminal, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
