"""The process of a stub: its start, the environment that the model sees, its end."""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import io
import os
import resource
import select
import signal
import socket
import sys
import threading
import types
import weakref
from importlib.machinery import BuiltinImporter
from typing import Callable, NamedTuple, NoReturn

from . import bytecode, ending, title
from .errors import ForeignProcess, Gone, ProtocolError, StubError

#: Exit codes: the model did not start; the connection to the supervisor is lost, or the stub
#: failed; the stub itself ran out of memory; the supervisor violates the protocol, which is not the
#: model's fault.
EXIT_NOT_STARTED = 1
EXIT_LOST = 70
EXIT_NO_MEMORY = 71
EXIT_CONFUSED = 76

#: Whether several threads execute Python code at the same time.
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()

_LARGEST_PACKET = 65536
_MOST_DESCRIPTORS = 10

#: How long the model's threads and exit handlers may delay the exit of a stopped stub.
EXIT_SECONDS = 5.0


class Descriptors(NamedTuple):
    """The descriptors of a stub, in the order of its command line."""

    down: int
    up: int
    requests: int
    bell_in: int
    bell_out: int
    lifeline: int
    regions: int = -1  # -1: clients have no regions that a stub could map


#: Their names for a model that has closed them.
_NAMES = (
    "the server's messages",
    "its own messages and outputs",
    "the memory of requests",
    "the bell that wakes it",
    "the bell that wakes the server",
    "the line by which it ends with the server",
    "the socket for regions of clients",
)

#: Descriptors are moved to high numbers if the limit allows: programs that daemonize close all up
#: to 1,000 or so. Not higher, because the kernel's table grows with the highest.
_HIGH = 4096
_ROOM = 16

_voice = 2  # for complaints if the model has closed stderr

_files: dict[int, tuple[str, int, int]] = {}  # by descriptor: its name, device and inode

_at_forks: weakref.WeakSet[AtForks] = weakref.WeakSet()
_hooked: list[None] = []  # one element when `_at_forks` is called

_hiding = threading.Lock()
_hidden = False  # whether `hide` was called


def settle(fds: Descriptors) -> Descriptors:
    """Become a process group that ends with the supervisor, and that Ctrl-C does not reach.

    Returns the descriptors, which have new numbers.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    title.name_process("triton_python_backend_stub")
    global _voice  # noqa: PLW0603  # one in a process
    with contextlib.suppress(OSError):
        _voice = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, _first())
    fds = _out_of_the_way(fds)
    arm(fds.lifeline)
    # Handlers instead of SIG_IGN, which programs started by the model would inherit.
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _ignore)
    _Children()
    return fds


def join(fds: Descriptors) -> Descriptors:
    """Prepare this thread for a further instance, on the cores of the main thread."""
    os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
    return _out_of_the_way(fds)


class AtForks:
    """Its methods are called at each fork of this process, from `hook` on, as long as it exists.

    Python itself never forgets a hook. As there, an error is reported and prevents nothing.
    """

    def hook(self) -> None:
        if not _hooked:
            _hooked.append(None)
            os.register_at_fork(
                before=lambda: _each(AtForks.prepare),
                after_in_parent=lambda: _each(AtForks.keep),
                after_in_child=lambda: _each(AtForks.disown),
            )
        _at_forks.add(self)

    def unhook(self) -> None:
        _at_forks.discard(self)

    def prepare(self) -> None:
        """Prepare for a fork."""

    def keep(self) -> None:
        """Continue in the parent."""

    def disown(self) -> None:
        """Continue in the child."""


def _each(step: Callable[[AtForks], None]) -> None:
    failure: Exception | None = None
    for one in list(_at_forks):
        try:
            getattr(one, step.__name__)()
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


def dismiss(fds: Descriptors) -> None:
    """Close the descriptors of an instance that has ended."""
    for fd in fds:
        if _files.pop(fd, None) is not None and fd != fds.regions:  # which a socket owns
            os.close(fd)


def _first() -> int:
    """Return the least number of descriptors that are out of the model's way."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(_HIGH if limit == resource.RLIM_INFINITY else min(limit, _HIGH), 2 * _ROOM) - _ROOM


def _out_of_the_way(fds: Descriptors) -> Descriptors:
    return Descriptors(*(fd if fd < 0 else move(fd, name) for name, fd in zip(_NAMES, fds)))


def move(fd: int, name: str) -> int:
    """Move a descriptor out of the model's way; returns its new number."""
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _first())
        os.close(fd)
    except OSError:
        moved = fd
    os.set_inheritable(moved, False)
    file = os.fstat(moved)
    _files[moved] = name, file.st_dev, file.st_ino
    return moved


def closed() -> str:
    """Return the names of descriptors that the model has closed or replaced, or ""."""
    gone = []
    for fd, (name, device, inode) in list(_files.items()):
        try:
            file = os.fstat(fd)
        except OSError:
            gone.append(f"{fd} ({name})")
            continue
        if (file.st_dev, file.st_ino) != (device, inode):
            gone.append(f"{fd} ({name}), which now refers to another file")
    return ", ".join(gone)


def _ignore(number: int, frame: object) -> None:
    pass


class _Children:
    """Lets processes forked by the model end by signals, as multiprocessing.Pool requires.

    A signal that arrives before the child has its own handlers is blocked, or ours would swallow
    it.
    """

    def __init__(self) -> None:
        self._masks: dict[int, set[int]] = {}  # by forking thread
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._heed)

    def _hold(self) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        self._masks[threading.get_ident()] = {int(number) for number in mask}

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.pop(threading.get_ident()))

    def _heed(self) -> None:
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) is _ignore:
                with contextlib.suppress(ValueError):  # not in this thread
                    signal.signal(number, usual)
        self._release()


def arm(lifeline: int) -> None:
    """Make the kernel kill this process group when the other end of lifeline is closed.

    No thread is involved, so it works while the group is stopped or the GIL is held. If the kernel
    refuses, as in some sandboxes, the end of the down bell still ends the process, but later.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return
    ended = select.poll()
    ended.register(lifeline, 0)
    if ended.poll(0):  # closed before it was armed
        os.killpg(0, signal.SIGKILL)


def receive(sender: socket.socket) -> tuple[bytes, list[int]]:
    """Receive one packet with its descriptors, from a socket that preserves message boundaries."""
    fds = array.array("i")
    space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * fds.itemsize)
    data, ancillary, _, _ = sender.recvmsg(_LARGEST_PACKET, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, raw in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(raw[: len(raw) // fds.itemsize * fds.itemsize])
    return data, fds.tolist()


def hide(root: str, search: list[str], changing: bool = False) -> None:
    """Make the interpreter look as in Triton: an empty __main__, no arguments, the search path.

    Bytecode of changing files is not kept: Python would use it for a changed file with the same
    size, written in the same second.
    """
    global _hidden  # noqa: PLW0603  # one in a process
    with _hiding:  # until the end: another instance imports the model when this returns
        if not _hidden:
            _hide(root, search, changing)
        _hidden = True


def _hide(root: str, search: list[str], changing: bool) -> None:
    # The old module was only referenced by sys.modules; this process's code lives on in its
    # functions.
    main = types.ModuleType("__main__")
    main.__loader__ = BuiltinImporter  # as in an embedded interpreter
    sys.modules["__main__"] = main
    sys.argv = [""]
    sys.path[:] = ["", *(path for path in sys.path if path != root), *search, root]
    if changing:
        sys.dont_write_bytecode = True
        return
    # The search path starts with version and model; the repository is above.
    bytecode.keep(root, [*search, *(os.path.dirname(folder) for folder in search[1:2])])


def leave(code: int) -> NoReturn:
    """Exit as interpreters do: by SystemExit, which the caller does not catch.

    The model's threads are joined and exit handlers run. Then the interpreter flushes and closes
    open files and removes its modules; a forked one only those that it does not share (`ending`).
    All of this may take at most EXIT_SECONDS. The alarm is not a thread, for which there may be no
    memory. If C code blocks the alarm, the supervisor's timeout applies.
    """

    def late(_number: int, _frame: object) -> None:
        flush()
        os._exit(code)

    with contextlib.suppress(ValueError, OSError):
        signal.signal(signal.SIGALRM, late)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
        signal.setitimer(signal.ITIMER_REAL, EXIT_SECONDS)
    try:
        shutdown = getattr(threading, "_shutdown", None)
        if shutdown is not None:
            shutdown()
        run_handlers = getattr(atexit, "_run_exitfuncs", None)
        if run_handlers is not None:
            run_handlers()
    except BaseException as error:
        print(f"exit handler of the model: {type(error).__name__}: {error}", file=sys.stderr)
    collect()
    flush()
    if code == 0 and ending.is_short():
        ending.take_down()
        # The last output of ended processes.
        collect()
        flush()
        ending.leave(code)
    sys.exit(code)


def collect() -> None:
    """Collect garbage without losing buffered data.

    A file in a reference cycle may be closed before its buffer is flushed, and modules are cycles.
    So files are flushed first.
    """
    for candidate in gc.get_objects():
        if issubclass(type(candidate), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(Exception):
                candidate.flush()
    gc.collect()


def flush() -> None:
    """Write buffered data of stdout and stderr."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        try:
            getattr(sys, name).flush()
        except Exception:
            # The model has closed or replaced it, or its reader has gone. The interpreter must not
            # try again and report this in its exit code.
            setattr(sys, name, None)


def refuse_breakpoint(*arguments: object, **named: object) -> object:
    """Implement `breakpoint()` for models: pdb would reach the end of its input and raise BdbQuit.

    A debugger set by PYTHONBREAKPOINT is called instead.
    """
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **named)
    raise RuntimeError(
        "breakpoint() was called, but a model in a server has no terminal for a debugger. Start the server "
        "with --dev, which lends its terminal (nereid serve DIR --dev), debug the model in a unit test with "
        "nereid_testing, select a debugger without a terminal with PYTHONBREAKPOINT, or disable breakpoints "
        "with PYTHONBREAKPOINT=0"
    )


def complain(instance: str, text: str) -> None:
    """Report to the operator why this stub ends, on stderr, in one line."""
    line = f"stub of {instance}: {text}\n".encode("utf-8", "backslashreplace")
    for fd in (2, _voice):
        with contextlib.suppress(OSError):
            os.write(fd, line)
            return


def disown(instance: str, error: ForeignProcess) -> NoReturn:
    """End a child of the model that returned into the stub, without exit handlers."""
    complain(instance, str(error))
    flush()
    os._exit(EXIT_LOST)


def lose(instance: str, error: StubError) -> NoReturn:
    """End the process because the connection to the supervisor is broken, from any thread."""
    if isinstance(error, Gone):
        # The lifeline normally ends the group before this is noticed.
        complain(instance, "Non-graceful termination detected. ")
        kill_group()
    complain(instance, str(error))
    os._exit(code_of(error))


def code_of(error: StubError) -> int:
    """Return the exit code for an error."""
    return EXIT_CONFUSED if isinstance(error, ProtocolError) else EXIT_LOST


def kill_group() -> None:
    """Kill this process and everything that the model has started in its group."""
    os.killpg(0, signal.SIGKILL)
