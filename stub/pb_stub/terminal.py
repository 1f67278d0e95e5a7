"""The server's terminal, lent to the debugger of one model at a time: `--dev`.

    breakpoint() ─▶ take: wait for other models' debuggers ─▶ this process group is in the
    foreground, with the terminal as 0 to 2 ─▶ the debugger's dialog ─▶ give_back: the server's
    group is in the foreground again

The stub is in the server's session, so job control does all of it: keys reach the debugger while it
owns the terminal, and the server otherwise. If a stub dies meanwhile, the server takes the terminal
back.
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

#: F_OFD_SETLK, which Python 3.8 does not define. Its locks end only with their descriptor, unlike
#: those that end when any descriptor of the file is closed.
_OFD_SETLK = 37

_lock = -1  # the locked descriptor, while this process owns the terminal
_saved: list[int] = []  # the previous 0 to 2
_server = 0  # the process group that gets the terminal back


class NoTerminal(RuntimeError):
    """The server has no terminal to lend."""


def held() -> bool:
    """Return whether this process owns the terminal."""
    return bool(_saved)


def take() -> None:
    """Take the terminal; waits while another model's debugger owns it.

    No effect if already owned.
    """
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
    """Give the terminal back, if this process owns it."""
    if not _saved:
        return
    _flush()
    with contextlib.suppress(OSError):  # it was disconnected
        _foreground(0, _server)
    for number, fd in enumerate(_saved):
        os.dup2(fd, number)
        os.close(fd)
    _saved.clear()
    _unlock()


def _wait() -> int:
    """Wait until no other debugger owns the terminal. The lock ends with its holder in any case.

    It locks this file, which the server unpacked for its user only, so other users cannot lock it.
    Each server has a byte, at the offset of its number.
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
    """Bring a process group to the foreground, ignoring the signal that stops background groups."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
    try:
        os.tcsetpgrp(terminal, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
