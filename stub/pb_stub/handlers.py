"""Signal handlers of the model. They run at once, but their exceptions are only raised in its code.

Python runs handlers between any two steps of the main thread's code. An exception there would leave
a lock of the stub held, or a frame half written. So every handler is wrapped, and its exception
during the stub's own code is kept:

    interrupted code            the exception
    the model's                 is raised there, as usual
    the stub's, between batches fails the next execute, as in Triton
    the stub's, in a call by    is raised from the call: at once if the call waits, otherwise when it
      the model                 returns

For the last case, a thread asks Python to call the handler of SIGINT again until the model's code
is reached. That handler is ours or wrapped by ours. No signal is sent: it would end the process if
the model has meanwhile given SIGINT its default action.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import Any, Callable

from . import process

#: Seconds between two attempts to raise an exception in the model's code.
_AGAIN = 0.001

_OURS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name)
    for name in ("pb_stub" + os.sep, "c_python_backend_utils" + os.sep, "triton_python_backend_utils.py")
)

_signal: Any = sys.modules["_signal"]  # `signal.signal` calls it, however it was imported


class Interrupted(BaseException):
    """Ends a wait for the bell. It is only raised in the code that `Handlers.waiting` names."""


class Handlers(process.AtForks):
    """The handlers of this process. Only the newest exception is kept."""

    def __init__(self) -> None:
        self.pending: BaseException | None = None
        self._trace: TracebackType | None = None  # traceback of the pending exception when first raised
        #: Whether the pending exception is for the model's call in progress.
        self.within = False
        #: Code that waits for the bell; its caller catches Interrupted.
        self.waiting: Any = None
        #: Code that waits for a frame in the mailbox of its local variable `box`.
        self.receiving: Any = None
        #: Code that calls the model's code; any exception may leave the called code.
        self.open: set[Any] = {_RUN, openly.__code__}
        self._main = _thread.get_ident()
        self._foreign = False
        self._poking = False
        self._again = False
        self._set = _signal.signal
        self._get = _signal.getsignal
        self.hook()

    def install(self) -> None:
        """Wrap the existing handlers and later ones."""
        for number in signal.valid_signals():
            handler = self._get(number)
            if callable(handler) and handler is not signal.default_int_handler:
                self._set(number, _Wrapped(self, handler))
        _signal.signal = self._wrap
        _signal.getsignal = self._unwrap

    def disown(self) -> None:
        self._foreign = True

    def _wrap(self, number: int, handler: Any) -> Any:
        previous = self._set(number, _Wrapped(self, handler) if callable(handler) else handler)
        return previous.handler if isinstance(previous, _Wrapped) else previous

    def _unwrap(self, number: int) -> Any:
        handler = self._get(number)
        return handler.handler if isinstance(handler, _Wrapped) else handler

    def due(self) -> bool:
        """Return whether this thread must leave the call that the model has made, with `leave`."""
        return self.within and self.pending is not None and _thread.get_ident() == self._main

    def leave(self) -> None:
        """Raise a pending exception, from code that can be left."""
        error = self.take()
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise exception and frame would be a cycle that keeps loans alive

    def take(self) -> BaseException | None:
        """Take the pending exception."""
        error, self.pending = self.pending, None
        self._trace = None
        self.within = False
        return error

    def _keep(self, error: BaseException, handled: BaseException | None) -> None:
        """Keep a handler's exception, without the one that the interrupted code was handling.

        That one may be the last batch's exception, and would keep the one before it, and so on.
        """
        if handled is not None:
            seen = set()
            link: BaseException | None = error
            while link is not None and id(link) not in seen:
                if link.__context__ is handled:
                    link.__context__ = None
                    break
                seen.add(id(link))
                link = link.__context__
        if error is self.pending and self._trace is not None:  # the same exception again, with a longer traceback
            error.__traceback__ = self._trace
            return
        self._trace = error.__traceback__
        self.pending = error

    def _run(self, handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        """Run a handler that interrupted frame, or check again whether frame can be left."""
        if self._foreign:
            handler(number, frame)
            return
        again = self._again and number == signal.SIGINT
        if again:
            self._again = False
        raises = self._is_models(frame)
        if not again:
            handled = None if raises else sys.exc_info()[1]
            try:
                handler(number, frame)
            except BaseException as error:
                if raises:
                    raise
                self._keep(error, handled)
            finally:
                handled = None  # the traceback of the kept exception references this frame
        if self.pending is None:
            return
        if raises:
            if again or self.within:
                self.leave()
            return
        self.within = self._is_within(frame)
        if self.within:
            self._interrupt(frame)

    def _is_models(self, frame: FrameType | None) -> bool:
        """Return whether an exception may leave frame: its code is the model's or called by it."""
        innermost = frame
        while frame is not None:
            if frame.f_code.co_filename.startswith(_OURS):
                return frame is not innermost and frame.f_code in self.open
            frame = frame.f_back
        return True

    def _is_within(self, frame: FrameType | None) -> bool:
        """Return whether frame works on a call that the model's code has made."""
        while frame is not None:
            if frame.f_code in self.open and frame.f_code is not _RUN:
                return True
            frame = frame.f_back
        return False

    def _interrupt(self, frame: FrameType | None) -> None:
        """End the wait of frame; if it does not wait, arrange for another check."""
        if not self._poking:
            self._poking = True
            try:
                # Not a Thread, whose locks the interrupted code may hold.
                _thread.start_new_thread(self._poke, ())
            except RuntimeError:
                self._poking = False  # the model's next wait raises it, or the next execute
        innermost = frame
        while frame is not None:
            if frame.f_code is self.receiving:
                frame.f_locals["box"].put(b"")  # wakes a wait for a frame that another thread reads
                break
            frame = frame.f_back
        if innermost is not None and innermost.f_code is self.waiting:
            raise Interrupted

    def _poke(self) -> None:
        while True:
            while self._to_poke():
                self._again = True
                _thread.interrupt_main()
                time.sleep(_AGAIN)
            self._poking = False
            if not self._to_poke():  # otherwise it became due before _poking was seen to be false
                return
            self._poking = True

    def _to_poke(self) -> bool:
        return self.within and self.pending is not None and isinstance(self._get(signal.SIGINT), _Wrapped)


_RUN = Handlers._run.__code__


class _Wrapped:
    """Wraps a handler for Python to call."""

    __slots__ = ("_handlers", "handler")

    def __init__(self, handlers: Handlers, handler: Any) -> None:
        self._handlers = handlers
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._handlers._run(self.handler, number, frame)


def openly(function: Callable[[], Any]) -> Any:
    """Call a function of the stub that a handler's exception may leave, like the model's code."""
    return function()
