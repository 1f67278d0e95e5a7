"""ResponseIterator: the responses of a model that may send any number of them."""

from __future__ import annotations

import threading
from typing import Any, List, Optional, Protocol, Sequence, Tuple

from .binding import MODULE, Bound, checked, incompatible
from .response import InferenceResponse

#: A response, and whether it is the last one.
Arrival = Tuple[InferenceResponse, bool]


class Source(Protocol):
    """The source of the responses, in order."""

    def take(self) -> Arrival:
        """Wait for the next response. Not called after the last one."""

    async def take_soon(self) -> Arrival:
        """Like `take`, for the running event loop."""

    def cancel(self) -> None:
        """Request cancellation; the remaining responses are still taken."""

    def stop(self) -> None:
        """Stop taking responses. Does not wait; may be called from a destructor."""


_SIGNATURE = (f"{MODULE}.ResponseIterator(arg0: {MODULE}.InferenceResponse)",)


@checked(cancel="None")
class ResponseIterator(Bound):
    """Iterates over the responses to a request. When finished, it starts again from the first.

    For this it keeps all responses. Unlike Triton's, it supports `async for`, and deleting it does
    not wait for the remaining responses but cancels the request.
    """

    __module__ = MODULE
    __slots__ = ("_at", "_cancelled", "_finished", "_mu", "_received", "_source")

    _at: int  # index of the next response
    _cancelled: bool
    _finished: bool
    _mu: threading.Lock  # one thread at a time waits for the next response
    _received: List[InferenceResponse]
    _source: Source

    def __init__(self, *args: Any, **named: Any) -> None:
        """Make an iterator over a single response.

        `exec` makes the iterators over a model's responses.
        """
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
        """Cancel the request. Earlier responses, and the model's last one, still arrive."""
        if not self._cancelled and not self._finished:
            self._cancelled = True
            self._source.cancel()

    def __del__(self) -> None:
        # An object whose __init__ failed has no slots.
        if not getattr(self, "_finished", True):
            self._source.stop()


def iterator_over(source: Source, *received: Arrival) -> ResponseIterator:
    """Make an iterator over received responses, followed by those of source."""
    iterator = ResponseIterator.__new__(ResponseIterator)
    _fill(iterator, source, received)
    return iterator


def _fill(iterator: ResponseIterator, source: Optional[Source], received: Sequence[Arrival]) -> None:
    iterator._source = source  # type: ignore[assignment]  # a finished iterator needs no source
    iterator._received = [response for response, _ in received]
    iterator._finished = any(last for _, last in received)
    iterator._at = 0
    iterator._cancelled = False
    iterator._mu = threading.Lock()
