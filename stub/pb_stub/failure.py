"""The text of an exception, as Triton formats it for clients.

    NameError: name 'x' is not defined

    At:
      /models/m/1/model.py(42): execute

The innermost frame comes first, followed by its callers. Frames of this package and of
c_python_backend_utils, which are C++ in Triton, are omitted. Files beside this package, which the
server has unpacked, are shown without their directory, so that clients do not learn it.
"""

from __future__ import annotations

import importlib.util
import os
from types import FrameType, TracebackType


def _directory(package: str) -> str:
    """Return a package's directory without importing it.

    This module reports failed numpy imports.
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return os.path.dirname(spec.origin) + os.sep


_STUB = _directory("pb_stub")
#: The directory where the server unpacked this package and the modules for models.
_ROOT = os.path.dirname(os.path.dirname(_STUB)) + os.sep
_API = _directory("c_python_backend_utils")
_HANDLERS = os.path.join(_STUB, "handlers.py")  # between a signal handler and the model's code that it interrupts

_UNAVAILABLE = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
_EMPTY = "<EMPTY MESSAGE>"
#: A class of the model, or its metaclass, may override any attribute, or fail for unknown ones
#: (`__getattr__`). These are CPython's own.
_name = type.__dict__["__name__"].__get__
_traceback = BaseException.__dict__["__traceback__"].__get__
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
#: Limits the exceptions described: an exception whose message raises its own kind never ends.
_DEEPEST = 3


def describe(error: BaseException, called: str = "", within: int = 0) -> str:
    """Make the text, without lone surrogates.

    If an exception has no message because of another one, the other's text follows, and so on;
    within is the depth. called is an additional last place, for code that was not started.
    """
    message, unavailable = _message(error)
    text = f"{_name(type(error))}: {message}"
    places = _places(_traceback(error))
    if called:
        places.append(called)
    if places:
        text += "\n\nAt:\n" + "".join(f"  {place}\n" for place in places)
    if unavailable is not None and within < _DEEPEST:
        text += f"\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {describe(unavailable, within=within + 1)}"
    return text.encode("utf-8", "backslashreplace").decode()


def trace(error: BaseException) -> str:
    """Return the traceback as Python prints it, with causes, for the log.

    "" if it adds nothing to `describe`.
    """
    # The import takes 5 ms, and is only needed for failures.
    from traceback import format_exception

    if _name(type(error)) == "BdbQuit":  # from bdb, which is not imported for this
        return "a debugger was quit, or had no terminal: nereid serve DIR --dev lends it the server's"
    outermost = _traceback(error)
    while outermost is not None and outermost.tb_frame.f_code.co_filename.startswith(_STUB):
        outermost = outermost.tb_next
    if outermost is None and _cause(error) is None and _context(error) is None:
        return ""
    try:
        text = "".join(format_exception(type(error), error, outermost))
    except BaseException as failed:  # from the model's code, such as sys.exit()
        text = f"<TRACEBACK UNAVAILABLE DUE TO {_name(type(failed))}>"
    return text.rstrip("\n").encode("utf-8", "backslashreplace").decode()


def _message(error: BaseException) -> tuple[str, BaseException | None]:
    """Return an exception's message, and the exception that prevents it, if any."""
    unavailable = None
    try:
        text = str.__str__(str(error))  # a subclass of str may override methods
    except BaseException as other:
        text, unavailable = _UNAVAILABLE, other
    try:
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            lines = [note if isinstance(note, str) else repr(note) for note in notes]
            text += f"\n__notes__ (len={len(notes)}):" + "".join(f"\n{line}" for line in lines)
    except BaseException:  # from __getattr__ or __repr__; the message is kept without them
        pass
    return text.replace(_ROOT, "") or _EMPTY, unavailable


def _places(traceback: TracebackType | None) -> list[str]:
    """Return the frames from the deepest one of the model outward, up to the call by this package.

    An exception of a signal handler that ran in this package continues at the model's call.
    """
    frame: FrameType | None = None
    outer: list[TracebackType] = []  # innermost last
    kept = False
    while traceback is not None:
        kept = kept or traceback.tb_frame.f_code.co_filename == _HANDLERS
        if not traceback.tb_frame.f_code.co_filename.startswith(_STUB):
            frame = traceback.tb_frame
            outer.append(traceback)
        traceback = traceback.tb_next
    places = []
    seen = set()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_STUB) and file != _HANDLERS:
            break
        seen.add(frame)
        if not file.startswith((_STUB, _API)):
            places.append(_place(frame, frame.f_lineno))
        frame = frame.f_back
    if kept:
        for entry in reversed(outer):
            frame = entry.tb_frame
            if frame not in seen and not frame.f_code.co_filename.startswith(_API):
                places.append(_place(frame, entry.tb_lineno))
    return places


def _place(frame: FrameType, line: int) -> str:
    file = frame.f_code.co_filename
    return f"{file[len(_ROOT) :] if file.startswith(_ROOT) else file}({line}): {frame.f_code.co_name}"
