"""What the classes here need of the process around them. The stub hands it over once, at its start."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, Protocol

import numpy as np

#: Levels of log messages, with the letters that a log line begins with.
INFO, WARNING, ERROR, VERBOSE = range(4)
_LETTERS = "IWEI"


class Origin(Protocol):
    """The bytes of one input tensor, where they lie outside of the message that named them."""

    def array(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Make a private, writable array of them, another one with each call."""

    def read(self) -> bytes:
        """Copy them as they came, whatever has been written into arrays."""


class Runtime(Protocol):
    """What the process offers."""

    def log(self, level: int, file: str, line: int, message: str) -> None:
        """Log a message of the model; file is a base name. It neither fails nor waits for long."""

    def model_directory(self) -> str:
        """The directory of the model's version."""

    def is_cancelled(self, handle: int) -> bool:
        """Whether nobody waits for the answer to a request any more."""

    def free_memory(self) -> int:
        """Bytes that the process can still take for tensors of its own."""


def print_line(level: int, file: str, line: int, message: str) -> None:
    """Write a log line to stderr, for times when no supervisor listens."""
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(now))
    text = f"{_LETTERS[level]}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid()} {file}:{line}]  {message}\n"
    # One write, past Python's buffers: other processes write to the same pipe. If it fails, nobody can be told.
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "backslashreplace"))


class Alone:
    """The runtime of an interpreter that is no stub, such as a unit test of a model."""

    def log(self, level: int, file: str, line: int, message: str) -> None:
        print_line(level, file, line, message)

    def model_directory(self) -> str:
        raise RuntimeError("get_model_dir() needs a server around the model")

    def is_cancelled(self, _handle: int) -> bool:
        return False

    def free_memory(self) -> int:
        return 0


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
