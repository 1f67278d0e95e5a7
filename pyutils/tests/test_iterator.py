"""ResponseIterator: the order of responses, and calls of its source."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, List

import pytest
from c_python_backend_utils import InferenceResponse, ResponseIterator
from c_python_backend_utils.iterator import Arrival, iterator_over


class Written:
    """A source with predefined responses."""

    def __init__(self, count: int) -> None:
        self.responses = [InferenceResponse([]) for _ in range(count)]
        self.taken = 0
        self.said: List[str] = []

    def take(self) -> Arrival:
        self.taken += 1
        return self.responses[self.taken - 1], self.taken == len(self.responses)

    async def take_soon(self) -> Arrival:
        await asyncio.sleep(0)
        return self.take()

    def cancel(self) -> None:
        self.said.append("cancel")

    def stop(self) -> None:
        self.said.append("stop")


def begun(count: int) -> Any:
    source = Written(count)
    return source, iterator_over(source, source.take())


def test_each_once_and_then_all_again() -> None:
    source, iterator = begun(4)
    assert list(iterator) == source.responses
    with pytest.raises(StopIteration):
        next(iterator)
    assert list(iterator) == source.responses
    assert list(iterator) == source.responses
    assert source.taken == 4


def test_goes_on_where_it_stopped() -> None:
    source, iterator = begun(5)
    assert next(iterator) is source.responses[0]
    for response in iterator:
        assert response is source.responses[1]
        break
    assert iter(iterator) is iterator
    assert list(iterator) == source.responses[2:]
    for response in iterator:  # a replay that is interrupted and resumed
        assert response is source.responses[0]
        break
    assert list(iterator) == source.responses[1:]


def test_nothing_is_taken_ahead() -> None:
    source, iterator = begun(3)
    next(iterator)
    assert source.taken == 1
    next(iterator)
    assert source.taken == 2


def test_cancel_is_said_once_and_not_after_the_end() -> None:
    source, iterator = begun(2)
    assert iterator.cancel() is None
    iterator.cancel()
    assert source.said == ["cancel"]
    assert len(list(iterator)) == 2
    source, iterator = begun(2)
    list(iterator)
    iterator.cancel()
    assert source.said == []
    with pytest.raises(TypeError):
        iterator.cancel(1)


def test_an_iterator_that_goes_stops_its_source() -> None:
    source, iterator = begun(2)
    del iterator
    assert source.said == ["stop"]
    source, iterator = begun(1)
    del iterator
    assert source.said == []


def test_coroutines_iterate_as_threads_do() -> None:
    async def run() -> None:
        source, iterator = begun(4)
        assert [response async for response in iterator] == source.responses
        assert [response async for response in iterator] == source.responses
        source, iterator = begun(4)
        async for response in iterator:
            assert response is source.responses[0]
            break
        assert list(iterator) == source.responses[1:]  # alternating between both kinds
        with pytest.raises(StopAsyncIteration):
            await iterator.__anext__()

    asyncio.run(run())


def test_threads_share_an_iterator() -> None:
    """Each response is given to one thread, and no thread waits forever."""
    source, iterator = begun(1000)
    found: List[InferenceResponse] = []
    threads = [threading.Thread(target=lambda: found.extend(iterator)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert set(map(id, found)) == set(map(id, source.responses))


def test_iterator_has_no_length_and_no_other_attributes() -> None:
    _, iterator = begun(2)
    with pytest.raises(TypeError):
        len(iterator)
    with pytest.raises(AttributeError):
        iterator.other = 1
    assert type(iterator) is ResponseIterator
