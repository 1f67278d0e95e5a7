"""The interface of these classes to their process. The stub installs it once, at its start."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, NoReturn, Optional, Protocol

import numpy as np

from .binding import Text

#: Levels of log messages, with the letters that a log line begins with.
INFO, WARNING, ERROR, VERBOSE = range(4)
_LETTERS = "IWEI"

#: Kinds of custom metrics, and what is done to them; the numbers cross the wire.
COUNTER, GAUGE, HISTOGRAM = range(3)
INCREMENT, SET, OBSERVE = range(1, 4)


class Refused(Exception):
    """The server, or whatever is in its place, refuses a call; the text says why."""


class Origin(Protocol):
    """The bytes of one input tensor, where they lie outside of the message that named them."""

    def array(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Make a private, writable array of them, another one with each call."""

    def read(self) -> bytes:
        """Copy them as they came, whatever has been written into arrays."""


class Outlet(Protocol):
    """The destination of the responses to one request. One thread sends at a time."""

    @property
    def decoupled(self) -> bool:
        """Whether the model may send any number of responses."""

    def send(self, response: Any, final: bool) -> None:
        """Send an InferenceResponse, or None with final alone. TritonModelException says why that failed."""

    def is_cancelled(self) -> bool:
        """Whether no client waits for the responses any more; when they are over, whether none did then."""

    def dropped(self, sends: int) -> None:
        """End the request: the model cannot do it any more, and has not.

        Sends says how often it has sent something. A destructor calls this: at any moment, in any thread.
        """


class Runtime(Protocol):
    """Services of the process."""

    def log(self, level: int, file: str, line: int, message: str) -> None:
        """Log a message of the model; file is a base name. It neither fails nor waits for long."""

    def model_directory(self) -> str:
        """The directory of the model's version."""

    def outlet(self, request: Any) -> Optional[Outlet]:
        """Where the responses to an unanswered InferenceRequest go; None if the model has made it."""

    def free_memory(self) -> int:
        """Bytes that the process can still take for tensors of its own."""

    def instance(self) -> str:
        """The name of the model's instance, for error texts."""

    # Each of these raises Refused. They wait without holding the interpreter's lock.

    def load_model(self, name: Text, config: Text, files: dict[Text, bytes]) -> None:
        """Load a model and wait until it serves. `config` is JSON that overrides its config, "" for none."""

    def unload_model(self, name: Text, dependents: bool) -> None:
        """Begin to unload a model, and what needs it."""

    def is_model_ready(self, name: Text, version: Text) -> bool:
        """Whether a version of a model, "" for the highest, can be used."""

    def new_family(self, name: Text, description: Text, kind: int) -> int:
        """Make a metric family, or refer to the one of that name; returns a number for it."""

    def drop_family(self, family: int) -> None:
        """End a family and its metrics. It does not wait, and may be called anywhere."""

    def new_metric(self, family: int, labels: list[tuple[str, str]], buckets: list[float]) -> int:
        """Make a metric of a family, or refer to the one with these labels; returns a number for it."""

    def change_metric(self, metric: int, operation: int, value: float) -> None:
        """Change a metric in a way that its kind allows. It does not wait for the server."""

    def metric_value(self, metric: int) -> float:
        """The value of a counter or a gauge, after all changes of this thread."""

    # Requests and responses are not named by their types: their modules import this one.

    def infer(self, request: Any, decoupled: bool) -> Any:
        """Execute an InferenceRequest and return its InferenceResponse, or a ResponseIterator if it is decoupled.

        An iterator is returned after the first response. Errors of the request are responses; TritonModelException
        means that models may not be called now.
        """

    def infer_soon(self, request: Any, decoupled: bool) -> Any:
        """Return a future of the running event loop for what `infer` returns; RuntimeError if no loop runs."""


def print_line(level: int, file: str, line: int, message: str) -> None:
    """Write a log line to stderr, for times when no supervisor listens."""
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(now))
    text = f"{_LETTERS[level]}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid()} {file}:{line}]  {message}\n"
    # One write, past Python's buffers: other processes write to the same pipe. A failure can be told nowhere.
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "backslashreplace"))


def _alone(*_arguments: object) -> NoReturn:
    raise Refused("this needs a server around the model")


class Alone:
    """The runtime of an interpreter that is no stub, such as a unit test of a model."""

    def log(self, level: int, file: str, line: int, message: str) -> None:
        print_line(level, file, line, message)

    def model_directory(self) -> str:
        raise RuntimeError("get_model_dir() needs a server around the model")

    def outlet(self, _request: Any) -> Optional[Outlet]:
        return None

    def free_memory(self) -> int:
        return 0

    def instance(self) -> str:
        return ""

    load_model = unload_model = is_model_ready = staticmethod(_alone)
    new_family = new_metric = change_metric = metric_value = staticmethod(_alone)

    def drop_family(self, _family: int) -> None:
        pass

    def infer(self, _request: Any, _decoupled: bool) -> NoReturn:
        raise RuntimeError("InferenceRequest.exec() needs a server around the model")

    def infer_soon(self, _request: Any, _decoupled: bool) -> NoReturn:
        raise RuntimeError("InferenceRequest.async_exec() needs a server around the model")


_installed: list[Runtime] = [Alone()]


def install(runtime: Runtime) -> None:
    """Make runtime the one that all classes use from now on."""
    _installed[0] = runtime


def current() -> Runtime:
    """The runtime of this process."""
    return _installed[0]


def caller(depth: int) -> tuple[str, int]:
    """Base name and line of the frame depth levels above the function that asks."""
    frame: Any = sys._getframe(depth + 1)
    return os.path.basename(frame.f_code.co_filename), frame.f_lineno
