"""Logger: messages of models in the server's log."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Tuple

from . import runtime
from .binding import MODULE, BoundEnum, Mismatch, Text, Unmakeable, as_text, incompatible


class LogLevel(BoundEnum):
    """The levels. Their numbers are sent."""

    __module__ = MODULE
    __qualname__ = "Logger.LogLevel"
    __slots__ = ()
    names = ("INFO", "WARNING", "ERROR", "VERBOSE")


_levels: Any = LogLevel  # its members are attributes
_INFO: LogLevel = _levels.INFO
_LEVEL = f"{MODULE}.Logger.LogLevel"
_SIGNATURE = ("(message: str) -> None",)
_LOG = (f"(message: str, level: {_LEVEL} = <LogLevel.INFO: 0>) -> None",)


def _log(function: str, level: int, args: Tuple[Any, ...], named: Dict[str, Any]) -> None:
    """Log the only argument with the position of the model's frame, two levels up."""
    try:
        text = as_text(_message(*args, **named))
    except (Mismatch, TypeError):
        raise incompatible(function, _SIGNATURE, args, named) from None
    _write(level, text)


def _message(message: object) -> object:
    return message


def _message_and_level(message: object, level: object = _INFO) -> Tuple[object, object]:
    return message, level


def _log_at(args: Tuple[Any, ...], named: Dict[str, Any]) -> None:
    """Log a message, optionally with a level, for the model's frame two levels up."""
    try:
        message, level = _message_and_level(*args, **named)
        text = as_text(message)
        if not isinstance(level, LogLevel):
            raise Mismatch
    except (Mismatch, TypeError):
        raise incompatible("log", _LOG, args, named) from None
    if level.value < len(LogLevel.names):
        _write(level.value, text)


def _write(level: int, text: Text) -> None:
    """Log for the model's frame, three levels up."""
    file, line = runtime.caller(3)
    runtime.current().log(level, file, line, text if isinstance(text, str) else text.decode("utf-8", "replace"))


class Logger(Unmakeable):
    """Static methods that log with the file and line of the caller.

    Each takes the text as `message`; `log` also takes a `level`, INFO by default.
    """

    __module__ = MODULE
    __slots__ = ()

    LogLevel: ClassVar[Any] = LogLevel
    INFO: ClassVar[Any] = _INFO
    WARNING: ClassVar[Any] = _levels.WARNING
    ERROR: ClassVar[Any] = _levels.ERROR
    VERBOSE: ClassVar[Any] = _levels.VERBOSE

    @staticmethod
    def log(*args: Any, **named: Any) -> None:
        _log_at(args, named)

    @staticmethod
    def log_info(*args: Any, **named: Any) -> None:
        _log("log_info", runtime.INFO, args, named)

    @staticmethod
    def log_warn(*args: Any, **named: Any) -> None:
        _log("log_warn", runtime.WARNING, args, named)

    @staticmethod
    def log_error(*args: Any, **named: Any) -> None:
        _log("log_error", runtime.ERROR, args, named)

    @staticmethod
    def log_verbose(*args: Any, **named: Any) -> None:
        _log("log_verbose", runtime.VERBOSE, args, named)
