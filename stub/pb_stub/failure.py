"""The text of an exception, as Triton gives it to clients.

    NameError: name 'x' is not defined

    At:
      /models/m/1/model.py(42): execute

Innermost frame first, then outward to the callers. Frames of this package and of c_python_backend_utils, which are C++
in Triton, do not appear.
"""

from __future__ import annotations

import importlib.util
import os
from types import FrameType, TracebackType


def _directory(package: str) -> str:
    """Where a package lies, without importing it: this module also reports that numpy cannot be imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return os.path.dirname(spec.origin) + os.sep


_STUB = _directory("pb_stub")
_API = _directory("c_python_backend_utils")

_UNAVAILABLE = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
_EMPTY = "<EMPTY MESSAGE>"
#: An exception whose message fails with one of its own kind has no last one.
_DEEPEST = 3


def describe(error: BaseException, within: int = 0) -> str:
    """Make the text. It holds no lone surrogates, whatever the exception says.

    One that has no message because of another one has the other's text at its end, and so on; within says how deep.
    """
    message, unavailable = _message(error)
    text = f"{type(error).__name__}: {message}"
    places = _places(error.__traceback__)
    if places:
        text += "\n\nAt:\n" + "".join(f"  {place}\n" for place in places)
    if unavailable is not None and within < _DEEPEST:
        text += f"\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {describe(unavailable, within + 1)}"
    return text.encode("utf-8", "backslashreplace").decode()


def trace(error: BaseException) -> str:
    """The whole traceback as Python shows it, causes included, for the log; "" if it says no more than `describe`."""
    # It takes 5 ms to import, and nobody needs it who does not fail.
    from traceback import format_exception

    outermost = error.__traceback__
    while outermost is not None and outermost.tb_frame.f_code.co_filename.startswith(_STUB):
        outermost = outermost.tb_next
    if outermost is None and error.__cause__ is None and error.__context__ is None:
        return ""
    try:
        text = "".join(format_exception(type(error), error, outermost))
    except Exception as failed:
        text = f"<TRACEBACK UNAVAILABLE DUE TO {type(failed).__name__}>"
    return text.rstrip("\n").encode("utf-8", "backslashreplace").decode()


def _message(error: BaseException) -> tuple[str, BaseException | None]:
    """What an exception says, and why it does not."""
    unavailable = None
    try:
        text = str(error)
    except BaseException as other:
        text, unavailable = _UNAVAILABLE, other
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines = (note if isinstance(note, str) else repr(note) for note in notes)
        text += f"\n__notes__ (len={len(notes)}):" + "".join(f"\n{line}" for line in lines)
    return text or _EMPTY, unavailable


def _places(traceback: TracebackType | None) -> list[str]:
    """The frames from the deepest one of the model outward, up to the call of this package."""
    frame: FrameType | None = None
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_STUB):
            frame = traceback.tb_frame
        traceback = traceback.tb_next
    places = []
    while frame is not None and not frame.f_code.co_filename.startswith(_STUB):
        if not frame.f_code.co_filename.startswith(_API):
            places.append(f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}")
        frame = frame.f_back
    return places
