"""The process of a stub: its start, the model's view of it, its end."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import os
import resource
import select
import signal
import sys
import threading
import types
from importlib.machinery import BuiltinImporter
from typing import NamedTuple, NoReturn

from . import bytecode, ending, title
from .errors import ForeignProcess, Gone, ProtocolError, StubError

#: Exit codes: the model did not start; stub and supervisor have lost each other, or the stub failed; there was no
#: memory for what the stub itself needs; what the supervisor says cannot be trusted, which is no fault of the model.
EXIT_NOT_STARTED = 1
EXIT_LOST = 70
EXIT_NO_MEMORY = 71
EXIT_CONFUSED = 76

#: How long threads and exit handlers of the model may hold up the end of a stub that has been told to go.
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


#: What each is to the model that has closed it.
_NAMES = (
    "the server's messages",
    "its own messages and outputs",
    "the memory of requests",
    "the bell that wakes it",
    "the bell that wakes the server",
    "the line by which it ends with the server",
    "the socket for regions of clients",
)

#: Descriptors are moved to numbers as high as this, where the limit allows it: programs that become daemons close all
#: up to 1,000 or so. Not higher: the kernel's table grows with the highest.
_HIGH = 4096
_ROOM = 16

_voice = 2  # where complaints go if the model has closed the standard error output

_files: dict[int, tuple[str, int, int]] = {}  # by descriptor: its name, device and inode


def settle(fds: Descriptors) -> Descriptors:
    """Become a process group of its own that dies with the supervisor, and that Ctrl-C does not reach.

    Returns the descriptors, which have other numbers from now on.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    title.name_process("triton_python_backend_stub")
    fds = _out_of_the_way(fds)
    arm(fds.lifeline)
    for fd in fds:
        if fd >= 0:
            os.set_inheritable(fd, False)
    # Handlers rather than SIG_IGN, which programs that the model starts would inherit.
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _ignore)
    _Children()
    return fds


def _out_of_the_way(fds: Descriptors) -> Descriptors:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    first = max(_HIGH if limit == resource.RLIM_INFINITY else min(limit, _HIGH), 2 * _ROOM) - _ROOM
    global _voice  # noqa: PLW0603  # there is one in a process
    with contextlib.suppress(OSError):
        _voice = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, first)
    moved = []
    for name, fd in zip(_NAMES, fds):
        if fd < 0:
            moved.append(fd)
            continue
        try:
            moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first))
            os.close(fd)
        except OSError:
            moved.append(fd)
        file = os.fstat(moved[-1])
        _files[moved[-1]] = name, file.st_dev, file.st_ino
    return Descriptors(*moved)


def closed() -> str:
    """Name the descriptors that the model has closed or replaced, or return ""."""
    gone = []
    for fd, (name, device, inode) in _files.items():
        try:
            file = os.fstat(fd)
        except OSError:
            gone.append(f"{fd} ({name})")
            continue
        if (file.st_dev, file.st_ino) != (device, inode):
            gone.append(f"{fd} ({name}), which leads elsewhere now")
    return ", ".join(gone)


def _ignore(number: int, frame: object) -> None:
    pass


class _Children:
    """Lets processes that the model forks be ended as others are: multiprocessing.Pool waits for that.

    A signal that comes before the child has its own handlers is held back, or ours would swallow it.
    """

    def __init__(self) -> None:
        self._masks: dict[int, set[int]] = {}  # by the thread that forks
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
    """Have the kernel kill this process group when the other end of lifeline is closed.

    No thread takes part, so it works while the group is stopped or the GIL is held. Where the kernel refuses, in a
    sandbox perhaps, the end of the down bell still tells, if later.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return
    ended = select.poll()
    ended.register(lifeline, 0)
    if ended.poll(0):  # before it was armed
        os.killpg(0, signal.SIGKILL)


def hide(root: str, search: list[str], changing: bool = False) -> None:
    """Make the interpreter look as the model expects it: an empty __main__, no arguments, Triton's search path.

    Compiled code of files that are changing is not kept: Python would take it for that of a file which has the same
    size and was written in the same second.
    """
    # sys.modules alone kept the old one alive; the code of this process goes on in its functions.
    main = types.ModuleType("__main__")
    main.__loader__ = BuiltinImporter  # as in an interpreter that is embedded
    sys.modules["__main__"] = main
    sys.argv = [""]
    sys.path[:] = ["", *(path for path in sys.path if path != root), *search, root]
    if changing:
        sys.dont_write_bytecode = True
        return
    # Search begins with version and model; the repository is above.
    bytecode.keep(root, [*search, *(os.path.dirname(folder) for folder in search[1:2])])


def leave(code: int) -> NoReturn:
    """End the process as an interpreter ends: by SystemExit, which the caller lets pass.

    Threads of the model are waited for, exit handlers are run, then the interpreter flushes and closes what is open and
    takes its modules down, a forked one those that it does not share (`ending`). None of it may take longer than
    EXIT_SECONDS. The alarm is no thread, for which there may be no memory; where C code keeps it from being heard, the
    supervisor's patience ends.
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
        # The last output of dead processes.
        collect()
        flush()
        ending.leave(code)
    sys.exit(code)


def collect() -> None:
    """Collect garbage, and lose nothing that it has buffered.

    A file in a circle of references may be closed below its buffer when the circle is taken apart, and modules are
    circles. So files are flushed before.
    """
    for candidate in gc.get_objects():
        if issubclass(type(candidate), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(Exception):
                candidate.flush()
    gc.collect()


def flush() -> None:
    """Write out what Python still holds back of stdout and stderr."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        try:
            getattr(sys, name).flush()
        except Exception:
            # The model has closed or replaced it, or its reader has gone. The interpreter shall not try again, and
            # tell of it by its exit code.
            setattr(sys, name, None)


def refuse_breakpoint(*arguments: object, **named: object) -> object:
    """What `breakpoint()` does in a model: the debugger would find the end of its input, and say BdbQuit.

    Where the user has named a debugger with PYTHONBREAKPOINT, it is called.
    """
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **named)
    raise RuntimeError(
        "breakpoint() was called, and a model that is served has no terminal for a debugger. Start the "
        "server with --dev, which lends its own (nereid serve DIR --dev), debug the model in a unit test with "
        "nereid_testing, name a debugger that needs none with PYTHONBREAKPOINT, or switch breakpoints off with "
        "PYTHONBREAKPOINT=0"
    )


def complain(instance: str, text: str) -> None:
    """Tell the operator why this stub ends, on stderr, in one line."""
    line = f"stub of {instance}: {text}\n".encode("utf-8", "backslashreplace")
    for fd in (2, _voice):
        with contextlib.suppress(OSError):
            os.write(fd, line)
            return


def disown(instance: str, error: ForeignProcess) -> NoReturn:
    """End a child of the model that came back into the stub: nothing of it is its business, exit handlers included."""
    complain(instance, str(error))
    flush()
    os._exit(EXIT_LOST)


def lose(instance: str, error: StubError) -> NoReturn:
    """End the process because the way to the supervisor does not work, from the thread that has found that out."""
    if isinstance(error, Gone):
        # The lifeline normally ends the group before this is noticed.
        complain(instance, "Non-graceful termination detected. ")
        kill_group()
    complain(instance, str(error))
    os._exit(code_of(error))


def code_of(error: StubError) -> int:
    """The exit code of a stub that ends because of an error."""
    return EXIT_CONFUSED if isinstance(error, ProtocolError) else EXIT_LOST


def kill_group() -> None:
    """End this process and all that the model has started in its group."""
    os.killpg(0, signal.SIGKILL)
