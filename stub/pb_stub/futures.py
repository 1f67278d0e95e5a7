"""Responses to BLS requests for event loops, which listen to the bell while no thread reads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, Callable, Protocol

from c_python_backend_utils.iterator import Arrival, Source, iterator_over
from c_python_backend_utils.response import InferenceResponse

from .channel import Channel
from .errors import ForeignProcess, StubError
from .service import Service


class Requests(Protocol):
    """The BLS requests of the model; implemented by inferences.Inferences."""

    @property
    def channel(self) -> Channel: ...

    @property
    def service(self) -> Service: ...

    def opened(self, frame: bytes) -> Arrival:
        """Decode a response."""

    def brought(self, device: int | None, arrival: Arrival) -> Arrival:
        """Copy the outputs of a response to their preferred device."""

    def forget(self, number: int) -> None:
        """Drop a request whose responses nobody waits for."""

    def lose(self, error: StubError) -> None:
        """End the process: the channel is lost."""


class Stream(Source, Protocol):
    """The responses to a decoupled request; implemented by inferences.Stream."""

    def follow(self, number: int, device: int | None, first: bytes) -> Arrival:
        """Take over a request with its first response."""


class _Future(asyncio.Future):  # type: ignore[type-arg]  # subscripted only from 3.9 on
    """The future of `async_exec`. Cancelling it cancels the request."""

    answer: Answer | None = None

    def cancel(self, *args: Any, **named: Any) -> bool:
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.abandon()
        return super().cancel(*args, **named)


class Inbox:
    """Events for one event loop.

    While it expects a frame, it listens to the bell in its own thread. If another thread reads, the
    loop does not wait for the bell, which would wake both: it is called for each arrival.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, inferences: Requests) -> None:
        self.loop = loop
        self._inferences = inferences
        self._channel = inferences.channel
        self._thread = threading.get_ident()
        self._expected = 0
        self._listens = False
        self._arrived: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._called = False

    # In the loop's thread.

    def expect(self) -> None:
        """Announce a request; `done` is called once for each."""
        self._expected += 1
        if self._expected == 1:
            self._channel.listen(self)

    def done(self) -> None:
        self._expected -= 1
        if not self._expected:
            self._channel.unlisten(self)
            self._leave()

    def _listen(self) -> None:
        if self._listens or not self._expected or self.loop.is_closed():
            return
        self._listens = True
        try:
            self.loop.add_reader(self._channel.bell, self._heard)
        except (NotImplementedError, OSError):
            self._inferences.service.need(self)

    def _leave(self) -> None:
        if not self._listens:
            return
        self._listens = False
        self._inferences.service.enough(self)
        if not self.loop.is_closed():
            try:
                self.loop.remove_reader(self._channel.bell)
            except NotImplementedError:
                pass

    def _heard(self) -> None:
        try:
            if not self._channel.heard():
                self._leave()
                # The reader may have stopped before it saw that this loop no longer listens.
                self._channel.listen(self)
        except ForeignProcess:
            self._leave()
        except StubError as error:
            self._inferences.lose(error)

    # In any thread.

    def armed(self) -> None:
        if self._listens:
            return
        if threading.get_ident() == self._thread:
            self._listen()
        else:
            self._soon(self._listen)

    def call(self, function: Callable[[Any], None], argument: Any) -> None:
        """Call a function, not the model's, in the loop's thread.

        Wakes the loop once for all calls.
        """
        if threading.get_ident() == self._thread:
            function(argument)
            return
        self._arrived.append((function, argument))
        if not self._called:
            self._called = True
            if not self._soon(self._empty):
                self._arrived.clear()

    def _soon(self, function: Callable[[], None]) -> bool:
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop was closed: no coroutine waits
            self._channel.unlisten(self)
            return False
        return True

    def _empty(self) -> None:
        self._called = False  # before all else: later arrivals call again
        while self._arrived:
            function, argument = self._arrived.popleft()
            function(argument)


_here = threading.local()


def inbox_here(inferences: Requests) -> Inbox:
    """Return the inbox of the running loop of this thread; RuntimeError without a loop."""
    loop = asyncio.get_running_loop()
    inbox: Inbox | None = getattr(_here, "inbox", None)
    if inbox is None or inbox.loop is not loop:
        inbox = _here.inbox = Inbox(loop, inferences)
    return inbox


class Answer:
    """The response, or the first one of a stream, that a future waits for."""

    __slots__ = ("_inbox", "_inferences", "_stream", "device", "future", "number")

    def __init__(self, inferences: Requests, stream: Stream | None) -> None:
        self._inferences = inferences
        self._stream = stream
        self._inbox = inbox_here(inferences)
        self.number = 0
        self.device: int | None = None
        self.future = _Future(loop=self._inbox.loop)

    def begin(self) -> None:
        """Prepare for the request being sent."""
        self.future.answer = self
        self._inbox.expect()

    def arrived(self, frame: bytes) -> None:
        stream = self._stream
        arrival = self._inferences.opened(frame) if stream is None else stream.follow(self.number, self.device, frame)
        self._inbox.call(self._settle, arrival)

    def _settle(self, arrival: Arrival) -> None:
        """Resolve the future, in its loop."""
        future = self.future
        if future.answer is None:  # abandoned
            return
        future.answer = None
        self._inbox.done()
        if not future.done():
            # In the loop's thread: the thread that read the frame also reads for others.
            arrival = self._inferences.brought(self.device, arrival)
            try:
                future.set_result(self._result(arrival))
            except RuntimeError:
                pass  # the loop was closed: no coroutine waits

    def refuse(self, refusal: InferenceResponse) -> None:
        """Resolve the future of a request that was not sent."""
        self._inbox.done()
        self.future.answer = None
        self.future.set_result(self._result((refusal, True)))

    def _result(self, arrival: Arrival) -> Any:
        return arrival[0] if self._stream is None else iterator_over(self._stream, arrival)

    def abandon(self) -> None:
        """Drop the request: its waiter has given up."""
        self._inbox.call(_done, self._inbox)
        self._inferences.forget(self.number)


def _done(inbox: Inbox) -> None:
    inbox.done()
