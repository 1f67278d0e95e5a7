"""Answers to requests of the model for event loops: the thread that reads a frame opens it and hands it over."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from c_python_backend_utils.iterator import Arrival, iterator_over
from c_python_backend_utils.response import InferenceResponse

if TYPE_CHECKING:
    from .inferences import Inferences, Stream


class _Future(asyncio.Future):  # type: ignore[type-arg]  # subscripted only from 3.9 on
    """The future of `async_exec`. Cancelling it cancels the request."""

    answer: Answer | None = None

    def cancel(self, *args: Any, **named: Any) -> bool:
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.abandon()
        return super().cancel(*args, **named)


class _Inbox:
    """What waits to be given to one event loop. The loop is woken once for all that has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[Answer, Arrival]] = deque()
        self._called = False

    def put(self, answer: Answer, arrival: Arrival) -> None:
        self._arrived.append((answer, arrival))
        if not self._called:
            self._called = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # the loop has been closed: nobody waits
                self._arrived.clear()

    def _empty(self) -> None:
        self._called = False  # first of all: what comes from here on calls again
        while self._arrived:
            answer, arrival = self._arrived.popleft()
            answer.settle(arrival)


_here = threading.local()


def _inbox() -> _Inbox:
    """The inbox of the loop that runs in this thread; RuntimeError if there is none."""
    loop = asyncio.get_running_loop()
    inbox: _Inbox | None = getattr(_here, "inbox", None)
    if inbox is None or inbox.loop is not loop:
        inbox = _here.inbox = _Inbox(loop)
    return inbox


class Answer:
    """The one answer, or the first of a stream, that a future waits for."""

    __slots__ = ("_inbox", "_inferences", "_stream", "future", "number")

    def __init__(self, inferences: Inferences, stream: Stream | None) -> None:
        self._inferences = inferences
        self._stream = stream
        self._inbox = _inbox()
        self.number = 0
        self.future = _Future(loop=self._inbox.loop)

    def begin(self) -> None:
        """The request is about to be sent."""
        self.future.answer = self
        self._inferences.expect(self)

    def arrived(self, frame: bytes) -> None:
        inferences = self._inferences
        inferences.unwatch(self)
        stream = self._stream
        self._inbox.put(self, inferences.opened(frame) if stream is None else stream.follow(self.number, frame))

    def settle(self, arrival: Arrival) -> None:
        """Resolve the future, in its loop."""
        future = self.future
        future.answer = None
        if not future.done():
            future.set_result(self._result(arrival))

    def refuse(self, refusal: InferenceResponse) -> None:
        """The request was not sent."""
        self._inferences.unwatch(self)
        self.future.answer = None
        self.future.set_result(self._result((refusal, True)))

    def _result(self, arrival: Arrival) -> Any:
        return arrival[0] if self._stream is None else iterator_over(self._stream, arrival)

    def abandon(self) -> None:
        """Nobody waits any more."""
        self._inferences.unwatch(self)
        self._inferences.forget(self.number)
