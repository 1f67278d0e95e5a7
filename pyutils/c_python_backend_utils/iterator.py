"""ResponseIterator: the responses of a model that may send any number of them."""

from __future__ import annotations

import threading
from typing import Any, List, Optional, Protocol, Sequence, Tuple

from .binding import MODULE, Bound, checked, incompatible
from .response import InferenceResponse

#: A response, and whether it is the last one.
Arrival = Tuple[InferenceResponse, bool]


class Source(Protocol):
    """Where the responses come from, in their order."""

    def take(self) -> Arrival:
        """Wait for the next response. Not called after the last one."""

    async def take_soon(self) -> Arrival:
        """As `take`, for the event loop that runs."""

    def cancel(self) -> None:
        """Say that the request is to be cancelled; its responses are still taken."""

    def stop(self) -> None:
        """Say that no more responses are taken. Never waits; may be called from a destructor."""


_SIGNATURE = (f"{MODULE}.ResponseIterator(arg0: {MODULE}.InferenceResponse)",)


@checked(cancel="None")
class ResponseIterator(Bound):
    """Gives the responses to a request one after another, and once it is finished all of them again.

    It keeps them for that as long as it lives. Unlike Triton's it can be used in `async for` too, and does not wait for
    the responses that are left when it is deleted: the request is cancelled then.
    """

    __module__ = MODULE
    __slots__ = ("_at", "_cancelled", "_finished", "_mu", "_received", "_source")

    _at: int  # of the response that comes next
    _cancelled: bool
    _finished: bool
    _mu: threading.Lock  # one thread at a time waits for the next response
    _received: List[InferenceResponse]
    _source: Source

    def __init__(self, *args: Any, **named: Any) -> None:
        """Make one over a single response. The iterators over those of models are made by `exec`."""
        if len(args) != 1 or named or not isinstance(args[0], InferenceResponse):
            raise incompatible("__init__", _SIGNATURE, args, named)
        _fill(self, None, [(args[0], True)])

    def __iter__(self) -> ResponseIterator:
        if self._finished and self._at >= len(self._received):
            self._at = 0
        return self

    def __next__(self) -> InferenceResponse:
        at = self._at
        if at < len(self._received):
            return self._again(at)
        with self._mu:
            at = self._at
            if at < len(self._received):
                return self._again(at)
            if self._finished:
                raise StopIteration("Iteration is done for the responses.")
            return self._note(self._source.take())

    def __aiter__(self) -> ResponseIterator:
        return self.__iter__()

    async def __anext__(self) -> InferenceResponse:
        at = self._at
        if at < len(self._received):
            return self._again(at)
        if self._finished:
            raise StopAsyncIteration("Iteration is done for the responses.")
        return self._note(await self._source.take_soon())

    def _again(self, at: int) -> InferenceResponse:
        self._at = at + 1
        return self._received[at]

    def _note(self, arrival: Arrival) -> InferenceResponse:
        response, last = arrival
        self._received.append(response)
        self._at = len(self._received)
        if last:
            self._finished = True
        return response

    def cancel(self) -> None:
        """Cancel the request. Responses sent before, and the model's last response, still arrive."""
        if not self._cancelled and not self._finished:
            self._cancelled = True
            self._source.cancel()

    def __del__(self) -> None:
        # An object that was never filled has no slots.
        if not getattr(self, "_finished", True):
            self._source.stop()


def iterator_over(source: Source, *received: Arrival) -> ResponseIterator:
    """Make the iterator over received responses and those of source."""
    iterator = ResponseIterator.__new__(ResponseIterator)
    _fill(iterator, source, received)
    return iterator


def _fill(iterator: ResponseIterator, source: Optional[Source], received: Sequence[Arrival]) -> None:
    iterator._source = source  # type: ignore[assignment]  # a finished one needs none
    iterator._received = [response for response, _ in received]
    iterator._finished = any(last for _, last in received)
    iterator._at = 0
    iterator._cancelled = False
    iterator._mu = threading.Lock()
