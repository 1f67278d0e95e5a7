"""The callback for coroutines that are not awaited."""

from __future__ import annotations

import traceback
from typing import Any

from . import runtime
from .binding import MODULE, Mismatch, incompatible

_SIGNATURE = ("(py_future: object) -> None",)


def async_event_future_done_callback(*args: Any, **named: Any) -> None:
    """Log the exception of a failed future. As a done callback it must not fail itself."""
    try:
        future = _argument(*args, **named)
    except (Mismatch, TypeError):
        raise incompatible("async_event_future_done_callback", _SIGNATURE, args, named) from None
    try:
        error = future.exception()
    except BaseException as failure:  # it was cancelled, or is not a future
        error = failure
    if error is not None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        file, line = runtime.caller(0)
        runtime.current().log(runtime.ERROR, file, line, text)


async_event_future_done_callback.__module__ = MODULE


def _argument(py_future: Any) -> Any:
    return py_future
