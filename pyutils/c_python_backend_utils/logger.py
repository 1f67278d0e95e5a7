"""Logger: messages of models, in the server's log."""

from __future__ import annotations

from typing import Any, ClassVar

from . import runtime
from .binding import MODULE, BoundEnum, Mismatch, Unmakeable, as_text, incompatible


class LogLevel(BoundEnum):
    """The levels; the numbers cross the wire."""

    __slots__ = ()
    names = ("INFO", "WARNING", "ERROR", "VERBOSE")


LogLevel.__qualname__ = "Logger.LogLevel"
LogLevel.__module__ = MODULE

_INFO = LogLevel(runtime.INFO)
_LEVEL = f"{MODULE}.Logger.LogLevel"


def _log(function: str, level: int, message: object) -> None:
    """Log for the model's frame, two levels up."""
    try:
        text = as_text(message)
    except Mismatch:
        raise incompatible(function, [f"(message: str{_log_level(function)}) -> None"], [message], {}) from None
    file, line = runtime.caller(2)
    runtime.current().log(level, file, line, text if isinstance(text, str) else text.decode("utf-8", "replace"))


def _log_level(function: str) -> str:
    return f", level: {_LEVEL} = <LogLevel.INFO: 0>" if function == "log" else ""


class Logger(Unmakeable):
    """Static methods only. The place in a log line is the file and line of the caller."""

    __module__ = MODULE
    __slots__ = ()

    LogLevel: ClassVar[Any] = LogLevel
    INFO: ClassVar[Any] = _INFO
    WARNING: ClassVar[Any] = LogLevel(runtime.WARNING)
    ERROR: ClassVar[Any] = LogLevel(runtime.ERROR)
    VERBOSE: ClassVar[Any] = LogLevel(runtime.VERBOSE)

    @staticmethod
    def log(message: object = None, level: object = _INFO) -> None:
        if not isinstance(level, LogLevel):
            signature = f"(message: str{_log_level('log')}) -> None"
            raise incompatible("log", [signature], [message, level], {})
        _log("log", level.value, message)

    @staticmethod
    def log_info(message: object = None) -> None:
        _log("log_info", runtime.INFO, message)

    @staticmethod
    def log_warn(message: object = None) -> None:
        _log("log_warn", runtime.WARNING, message)

    @staticmethod
    def log_error(message: object = None) -> None:
        _log("log_error", runtime.ERROR, message)

    @staticmethod
    def log_verbose(message: object = None) -> None:
        _log("log_verbose", runtime.VERBOSE, message)
