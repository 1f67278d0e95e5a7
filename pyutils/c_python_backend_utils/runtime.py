"""The interface of these classes to their process. The stub installs it once, at startup."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from contextvars import ContextVar
from typing import Any, NoReturn, Optional, Protocol

import numpy as np

from .binding import Text

#: Levels of log messages, and the first letters of their log lines.
INFO, WARNING, ERROR, VERBOSE = range(4)
_LETTERS = "IWEI"

#: Kinds of custom metrics, and operations on them; the numbers are sent.
COUNTER, GAUGE, HISTOGRAM = range(3)
INCREMENT, SET, OBSERVE = range(1, 4)


class Refused(Exception):
    """The server, or its replacement, rejects a call; the text says why."""


class Origin(Protocol):
    """The bytes of an input tensor that are outside of the message that named it."""

    def array(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Make a private, writable array of the bytes; each call returns another one."""

    def read(self) -> bytes:
        """Copy the bytes as they arrived, regardless of writes to the arrays."""


class Outlet(Protocol):
    """The destination of the responses to one request. One thread sends at a time."""

    @property
    def decoupled(self) -> bool:
        """Return whether the model may send any number of responses."""

    def send(self, response: Any, final: bool) -> None:
        """Send an InferenceResponse, or the final flag alone; may raise TritonModelException."""

    def is_cancelled(self) -> bool:
        """Return whether the client has gone away; after completion, whether it had."""

    def dropped(self, sends: int) -> None:
        """End a request that the model can no longer complete.

        sends is the number of responses and flags sent so far. Destructors call this, at any time
        and in any thread.
        """


class Runtime(Protocol):
    """Services of the process."""

    def log(self, level: int, file: str, line: int, message: str) -> None:
        """Log a message of the model; file is a base name. Does not fail or block for long."""

    def model_directory(self) -> str:
        """Return the directory of the model's version."""

    def outlet(self, request: Any) -> Optional[Outlet]:
        """Return the destination of an open request's responses; None for BLS requests."""

    def converts_device_tensors(self) -> bool:
        """Return whether as_numpy copies a tensor on a device to the host, or raises an error."""

    def free_memory(self) -> int:
        """Return the number of bytes that the process can still allocate for its own tensors."""

    def instance(self) -> str:
        """Return the name of the model's instance, for error texts."""

    # Each of these raises Refused. They wait without holding the GIL.

    def load_model(self, name: Text, config: Text, files: dict[Text, bytes]) -> None:
        """Load a model and wait until it is ready.

        `config` overrides its config.pbtxt unless "".
        """

    def unload_model(self, name: Text, dependents: bool) -> None:
        """Start unloading a model and, if requested, its dependents."""

    def is_model_ready(self, name: Text, version: Text) -> bool:
        """Return whether a version of a model is ready; "" is the highest."""

    def new_family(self, name: Text, description: Text, kind: int) -> int:
        """Make a metric family, or reference the existing one; returns its number."""

    def drop_family(self, family: int) -> None:
        """End a family and its metrics. Does not wait, and may be called anywhere."""

    def new_metric(self, family: int, labels: list[tuple[str, str]], buckets: list[float]) -> int:
        """Make a metric, or reference the existing one with these labels; returns its number."""

    def change_metric(self, metric: int, operation: int, value: float) -> None:
        """Apply an operation that the metric's kind allows. Does not wait for the server."""

    def metric_value(self, metric: int) -> float:
        """Return the value of a counter or gauge, after all changes by this thread."""

    # Requests and responses are typed as Any: their modules import this one.

    def infer(self, request: Any, decoupled: bool) -> Any:
        """Execute an InferenceRequest; returns an InferenceResponse, or if decoupled, an iterator.

        A ResponseIterator is returned after the first response. Errors of the request are
        responses; TritonModelException means that BLS is not possible now.
        """

    def infer_soon(self, request: Any, decoupled: bool) -> Any:
        """Like `infer`, but return a future of the running event loop; RuntimeError without one."""


def print_line(level: int, file: str, line: int, message: str) -> None:
    """Write a log line to stderr, for use while no supervisor is connected."""
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(now))
    text = f"{_LETTERS[level]}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid()} {file}:{line}]  {message}\n"
    # One unbuffered write: other processes write to the same pipe. A failure cannot be reported.
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "backslashreplace"))


def _alone(*_arguments: object) -> NoReturn:
    raise Refused("this is only possible in a server")


class Alone:
    """The runtime of an interpreter that is not a stub, such as a unit test of a model."""

    def log(self, level: int, file: str, line: int, message: str) -> None:
        print_line(level, file, line, message)

    def model_directory(self) -> str:
        raise RuntimeError("get_model_dir() is only available in a server")

    def outlet(self, _request: Any) -> Optional[Outlet]:
        return None

    def converts_device_tensors(self) -> bool:
        return True

    def free_memory(self) -> int:
        return 0

    def instance(self) -> str:
        return ""

    load_model = unload_model = is_model_ready = staticmethod(_alone)
    new_family = new_metric = change_metric = metric_value = staticmethod(_alone)

    def drop_family(self, _family: int) -> None:
        pass

    def infer(self, _request: Any, _decoupled: bool) -> NoReturn:
        raise RuntimeError("InferenceRequest.exec() is only available in a server")

    def infer_soon(self, _request: Any, _decoupled: bool) -> NoReturn:
        raise RuntimeError("InferenceRequest.async_exec() is only available in a server")


_installed: list[Runtime] = [Alone()]
_mine: ContextVar[Runtime] = ContextVar("c_python_backend_utils_runtime")


def install(runtime: Runtime) -> None:
    """Set the runtime that all classes use from now on: after `separate`, in this thread."""
    _installed[-1:] = [runtime]


def remove(runtime: Runtime) -> None:
    """Undo `install` after `separate`."""
    if len(_installed) > 1:
        _installed.remove(runtime)


def current() -> Runtime:
    """Return the runtime of this process, or after `separate`, of this thread."""
    return _installed[-1]


def separate() -> None:
    """Give each thread that calls `install` a runtime of its own. Threads that it starts inherit it.

    If it has been removed, and in other threads, the latest one is used.
    """
    global install, current
    start = threading.Thread.start

    def start_with_mine(self: threading.Thread) -> None:
        mine = _mine.get(None)
        if mine is not None:
            run = self.run

            def run_with_mine() -> None:
                self.__dict__.pop("run", None)
                _mine.set(mine)
                run()

            self.run = run_with_mine  # type: ignore[method-assign]
        try:
            start(self)
        except BaseException:
            self.__dict__.pop("run", None)
            raise

    def install_mine(runtime: Runtime) -> None:
        _mine.set(runtime)
        _installed.append(runtime)

    def mine_or_latest() -> Runtime:
        mine = _mine.get(None)
        return mine if mine in _installed else _installed[-1]

    threading.Thread.start = start_with_mine  # type: ignore[method-assign]
    install, current = install_mine, mine_or_latest


def caller(depth: int) -> tuple[str, int]:
    """Return base name and line of the frame that is depth levels above the caller."""
    frame: Any = sys._getframe(depth + 1)
    return os.path.basename(frame.f_code.co_filename), frame.f_lineno
