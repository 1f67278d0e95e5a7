"""Signal handlers of the model. They run at once, but their exceptions are only raised in the model's own code.

Python runs handlers between any two steps of the main thread's code. An exception there would leave a lock of the stub
taken, or a frame half written. So every handler is wrapped, and what it raises while the stub's own code runs is kept:

    the interrupted code        what becomes of the exception
    the model's                 it comes out there, as always
    the stub's, between batches the next execute fails with it, as in Triton
    the stub's, for the model   it comes out of the call that the model has made: of one that waits at once, of another
                                when it returns

For the last a thread asks Python to call the handler of SIGINT again, until the model's code is reached. That handler
is ours or wrapped by ours. No signal is sent: if the model has given SIGINT its default action meanwhile, it would end
the process.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import Any, Callable

#: Seconds between two attempts to raise an exception in the model's code.
_AGAIN = 0.001

_OURS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name)
    for name in ("pb_stub" + os.sep, "c_python_backend_utils" + os.sep, "triton_python_backend_utils.py")
)

_signal: Any = sys.modules["_signal"]  # what `signal.signal` calls, whenever it was imported from there


class Interrupted(BaseException):
    """Ends a wait for the bell. It is raised in the code that `Handlers.waiting` names, and nowhere else."""


class Handlers:
    """The handlers of this process. One exception is kept at a time, the newest, however often handlers raise."""

    def __init__(self) -> None:
        self.pending: BaseException | None = None
        self._trace: TracebackType | None = None  # of the pending exception, when it was first raised
        #: Whether the pending exception is for the call that the model has made, and has not returned from.
        self.within = False
        #: Code that waits for the bell, and that catches Interrupted around its call.
        self.waiting: Any = None
        #: Code that waits for a frame in a mailbox, its local `box`.
        self.receiving: Any = None
        #: Code that calls the model's: what it has called may be left by any exception.
        self.open: set[Any] = {_RUN, openly.__code__}
        self._main = _thread.get_ident()
        self._foreign = False
        self._poking = False
        self._again = False
        self._set = _signal.signal
        self._get = _signal.getsignal
        os.register_at_fork(after_in_child=self._disown)

    def install(self) -> None:
        """Wrap the handlers that there are, and those to come."""
        for number in signal.valid_signals():
            handler = self._get(number)
            if callable(handler) and handler is not signal.default_int_handler:
                self._set(number, _Wrapped(self, handler))
        _signal.signal = self._wrap
        _signal.getsignal = self._unwrap

    def _disown(self) -> None:
        self._foreign = True

    def _wrap(self, number: int, handler: Any) -> Any:
        previous = self._set(number, _Wrapped(self, handler) if callable(handler) else handler)
        return previous.handler if isinstance(previous, _Wrapped) else previous

    def _unwrap(self, number: int) -> Any:
        handler = self._get(number)
        return handler.handler if isinstance(handler, _Wrapped) else handler

    def due(self) -> bool:
        """Whether this thread is to leave the call that the model has made, by `leave`."""
        return self.within and self.pending is not None and _thread.get_ident() == self._main

    def leave(self) -> None:
        """Raise a pending exception, from code that can be left."""
        error = self.take()
        if error is not None:
            try:
                raise error
            finally:
                del error  # or exception and frame would hold each other, and with them the loans of the model's frames

    def take(self) -> BaseException | None:
        """Take the pending exception."""
        error, self.pending = self.pending, None
        self._trace = None
        self.within = False
        return error

    def _keep(self, error: BaseException, handled: BaseException | None) -> None:
        """Keep the exception of a handler, without the exception that the interrupted code of the stub was handling.

        That one may be what the last batch failed with, and would hold the one before it, and so on.
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
        if error is self.pending and self._trace is not None:  # the same one again, with a traceback that has grown
            error.__traceback__ = self._trace
            return
        self._trace = error.__traceback__
        self.pending = error

    def _run(self, handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        """Run a handler that has interrupted frame, or look again whether that can be left."""
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
                handled = None  # the traceback of the kept exception holds this frame
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
        """Whether frame may be left by an exception: the code is the model's, or was called by it."""
        innermost = frame
        while frame is not None:
            if frame.f_code.co_filename.startswith(_OURS):
                return frame is not innermost and frame.f_code in self.open
            frame = frame.f_back
        return True

    def _is_within(self, frame: FrameType | None) -> bool:
        """Whether frame works for a call that the model's code has made."""
        while frame is not None:
            if frame.f_code in self.open and frame.f_code is not _RUN:
                return True
            frame = frame.f_back
        return False

    def _interrupt(self, frame: FrameType | None) -> None:
        """End the wait that frame is in; if it is in none, see that it is looked at again."""
        if not self._poking:
            self._poking = True
            try:
                # Not a Thread, which takes locks that the interrupted code may hold.
                _thread.start_new_thread(self._poke, ())
            except RuntimeError:
                self._poking = False  # the next wait of the model raises it, or the next execute
        innermost = frame
        while frame is not None:
            if frame.f_code is self.receiving:
                frame.f_locals["box"].put(b"")  # wakes a wait for what another thread reads
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
            if not self._to_poke():  # else it has become so before _poking was seen to be false
                return
            self._poking = True

    def _to_poke(self) -> bool:
        return self.within and self.pending is not None and isinstance(self._get(signal.SIGINT), _Wrapped)


_RUN = Handlers._run.__code__


class _Wrapped:
    """What Python calls in place of a handler."""

    __slots__ = ("_handlers", "handler")

    def __init__(self, handlers: Handlers, handler: Any) -> None:
        self._handlers = handlers
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._handlers._run(self.handler, number, frame)


def openly(function: Callable[[], Any]) -> Any:
    """Call a function of the stub that an exception of a handler may leave at any step, as the model's code."""
    return function()
