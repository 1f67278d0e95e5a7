"""A template: an interpreter with numpy and this package, which forks stubs in milliseconds.

    supervisor ──  one packet: {"instance", "cwd"?, "mark"?, "shared"?} and 8 to 10 descriptors  ──▶ template
    supervisor ◀──────────────  {"pid"} or {"error"}  ────────────────────────── template
    supervisor ───────────────────────  {"end"}  ──────────────────────────────▶ template

It forks twice, so that the supervisor, a child subreaper, adopts the stub. One thread, one request
at a time: a fork copies the current state, so nothing else may run here. The template ends when its
socket is closed. If that was not announced, the supervisor was killed, and the template kills
processes that models have left in their own sessions.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import socket
import sys
import threading
import warnings
from typing import Any, NamedTuple, NoReturn, Sequence

from . import _msgpack, activation, ending, main, marks, process, title
from .process import Descriptors

#: Least and most descriptors of a request: a stub's, the last of which may be missing, perhaps its
#: socket for joins, and its stdout and stderr.
_LEAST_DESCRIPTORS, _MOST_DESCRIPTORS = 8, 10
_END = _msgpack.pack({"end": True})

EXIT_NO_NUMPY = 3

#: Maximum number of threads named to the supervisor.
_MOST_THREADS = 16


class Areas(NamedTuple):
    """The memory where a forked stub writes its title and mark for `ps` and the supervisor."""

    title: tuple[int, int] | None
    mark: tuple[int, int] | None


class _Bad(Exception):
    """A request that cannot be fulfilled; the text is the answer."""


def command(arguments: list[str]) -> NoReturn:
    """Run `<program> --fd=N PADDING…`; the padding makes room for the title of a stub."""
    if len(arguments) < 2 or not arguments[1].startswith("--fd="):
        sys.exit("usage: nereid_template --fd=N [PADDING]")
    title.name_process("nereid_template")
    activation.keep_libraries()
    threads = _threads_of_others()
    stub = serve(socket.socket(fileno=int(arguments[1][len("--fd=") :])), threads)
    main(*stub)


class _Stub(NamedTuple):
    """The identity of a forked process: the instance, its descriptors, and its socket for joins or -1."""

    instance: str
    fds: Descriptors
    joins: int


def _threads_of_others() -> list[str]:
    """Return threads started by the interpreter, perhaps by `sitecustomize`: forks lack them.

    Threads of a BLAS, which numpy includes, are ignored: they support forks.
    """
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if not names and "numpy" not in sys.modules:
        with contextlib.suppress(OSError):
            names = ["unknown"] * (len(os.listdir("/proc/self/task")) - 1)
    return names[:_MOST_THREADS]


def serve(supervisor: socket.socket, threads: Sequence[str] = ()) -> _Stub:
    """Fork stubs until the supervisor closes its end.

    Only returns in stubs, without template state.
    """
    supervisor.set_inheritable(False)
    # The supervisor ends it; Ctrl-C reaches whole process groups.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        hello = _load()
    except Exception as error:
        supervisor.send(_msgpack.pack({"error": f"{sys.executable}: {type(error).__name__}: {error}"}))
        sys.exit(EXIT_NO_NUMPY)
    where = Areas(title.area(), marks.area())
    ending.share()
    gc.collect()
    gc.freeze()
    supervisor.send(_msgpack.pack({**hello, "threads": list(threads)}))
    while True:
        try:
            data, fds = process.receive(supervisor)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            marks.end_all()
            os._exit(0)
        if data == _END:
            os._exit(0)
        try:
            born = _fork(supervisor, data, fds, where)
            if isinstance(born, _Stub):
                fds.clear()
                return born
            answer: dict[str, Any] = {"pid": born}
        except (_Bad, OSError, _msgpack.Malformed) as error:
            answer = {"error": str(error)}
        finally:
            for fd in fds:
                os.close(fd)
        try:
            supervisor.send(_msgpack.pack(answer))
        except BrokenPipeError:
            marks.end_all()
            os._exit(0)


def _load() -> dict[str, Any]:
    """Import everything that stubs use, and common packages of models, to share their memory."""
    import numpy
    import numpy.random
    import triton_python_backend_utils
    from c_python_backend_utils import dlpack

    from . import accelerator, coroutines, loop

    del triton_python_backend_utils, dlpack, coroutines, loop
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": numpy.__version__,
        "executable": sys.executable or "",
        "prefix": sys.prefix,
        "pid": os.getpid(),
        "no_accelerator": accelerator.reason,
        "accelerator_failed": accelerator.failed,
        "free_threaded": process.FREE_THREADED,
    }


def _fork(supervisor: socket.socket, data: bytes, fds: list[int], where: Areas) -> int | _Stub:
    """Start a stub and return its pid.

    In the stub, report through a pipe and return its identity.
    """
    request = _msgpack.unpack(data)
    if not isinstance(request, dict) or not isinstance(request.get("instance"), str):
        raise _Bad("the request names no instance")
    if not _LEAST_DESCRIPTORS <= len(fds) <= _MOST_DESCRIPTORS:
        raise _Bad(f"{len(fds)} descriptors came, want {_LEAST_DESCRIPTORS} to {_MOST_DESCRIPTORS}")
    if where.title is None:
        raise _Bad("the title of a forked stub cannot be set here: ctypes or /proc is missing")
    report, reporter = os.pipe()
    try:
        with warnings.catch_warnings():
            # Newer versions warn of forks while other threads exist: here, those of a BLAS, which
            # supports forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            between = os.fork()
        if between == 0:
            return _between(supervisor, reporter, request, fds, where)
        os.close(reporter)
        reporter = -1
        os.waitpid(between, 0)
        with os.fdopen(report, "rb", closefd=False) as stream:
            said = stream.read()
    finally:
        os.close(report)
        if reporter >= 0:
            os.close(reporter)
    if not said.isdigit() or not _leads(int(said)):
        raise _Bad(said.decode("utf-8", "replace") or "the forked process ended before it had become a stub")
    return int(said)


def _leads(stub: int) -> bool:
    """Return whether a process leads a group, as a started stub does."""
    try:
        return os.getpgid(stub) == stub
    except ProcessLookupError:
        return False


def _between(supervisor: socket.socket, reporter: int, request: dict[str, Any], fds: list[int], where: Areas) -> _Stub:
    """Run the intermediate process. Its end makes the supervisor adopt its child, the stub."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            stub = os.fork()
        if stub:
            os._exit(0)
        try:
            _become_stub(supervisor, request, fds, where)
        except Exception as error:
            os.write(reporter, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
            os._exit(process.EXIT_LOST)
        # If the template is lost meanwhile, this process ends with its group, or already has its
        # own mark, by which the supervisor ends it before it passes these descriptors to another
        # stub. The template reads until the caller has closed the reporter.
        os.write(reporter, b"%d" % os.getpid())
        os.setpgid(0, 0)
        shared = request.get("shared") is True
        return _Stub(request["instance"], Descriptors(*fds[: -3 if shared else -2]), fds[-3] if shared else -1)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(reporter, f"fork: {error}".encode("utf-8", "replace"))
        os._exit(process.EXIT_LOST)
    except BaseException:
        os._exit(process.EXIT_LOST)


def _become_stub(supervisor: socket.socket, request: dict[str, Any], fds: list[int], where: Areas) -> None:
    """Release everything that belongs to the template."""
    supervisor.close()
    null = os.open(os.devnull, os.O_RDONLY)
    for number, fd in enumerate((null, *fds[-2:])):
        os.dup2(fd, number)
        os.close(fd)
    if request.get("cwd"):
        os.chdir(request["cwd"])
    if where.title is not None:
        title.write(where.title, f"triton_python_backend_stub {request['instance']}")
    if isinstance(request.get("mark"), str):
        marks.write(where.mark, request["mark"])
    # Not done by Python for a forked main thread.
    renew = getattr(threading.main_thread(), "_set_native_id", None)
    if renew is not None:
        renew()
    # Otherwise all stubs of this template would draw the same numbers.
    random.seed()
    numpy_random: Any = sys.modules["numpy.random"]  # imported by _load
    numpy_random.seed()
