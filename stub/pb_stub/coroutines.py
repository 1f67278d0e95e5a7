"""The event loop for models with an `async def execute`. It runs in its own thread, on demand."""

from __future__ import annotations

import asyncio
import threading
import traceback
from types import GeneratorType
from typing import Any, Callable, Coroutine, Generator, Optional

from c_python_backend_utils import runtime

from .callers import BATCH
from .handlers import openly

is_coroutine = asyncio.iscoroutine

#: Receives the result or exception of a coroutine.
Ended = Callable[[Any, Optional[BaseException]], None]


class EventLoop:
    """Runs coroutines; the model's tasks continue between batches."""

    def __init__(self) -> None:
        self._running = 0  # number of started coroutines
        self._fewer = threading.Condition()  # guards _running; notified when a coroutine ends
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        threading.Thread(target=self._serve, name="pb_stub event loop", daemon=True).start()

    def _serve(self) -> None:
        """Run the loop even after SystemExit or KeyboardInterrupt of a task: others wait for it."""
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException:
                _complain()

    def run(self, batch: int, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a batch's coroutine to its end. Returns its result or raises its exception here."""
        future = asyncio.run_coroutine_threadsafe(_of_batch(batch, coroutine), self._loop)
        result, error = openly(future.result)
        if error is not None:
            raise error
        return result

    def start(self, batch: int, coroutine: Coroutine[Any, Any, Any], ended: Ended, most: int | None) -> None:
        """Start a batch's coroutine, and wait until fewer than most started coroutines are running.

        Its result or exception is passed to ended, in the loop's thread.
        """
        with self._fewer:
            self._running += 1
        asyncio.run_coroutine_threadsafe(self._run_on(batch, coroutine, ended), self._loop)
        if most is not None:
            with self._fewer:
                self._fewer.wait_for(lambda: self._running < most)

    async def _run_on(self, batch: int, coroutine: Coroutine[Any, Any, Any], ended: Ended) -> None:
        result, error = await _of_batch(batch, coroutine)
        try:
            ended(result, error)
        except BaseException:
            _complain()
        finally:
            with self._fewer:
                self._running -= 1
                self._fewer.notify()

    def stop(self) -> None:
        """Stop the loop; pending tasks are dropped."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _of_batch(batch: int, coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    BATCH.set(batch)
    return await _guarded(coroutine)


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Prevent SystemExit and KeyboardInterrupt from ending the loop's thread."""
    try:
        return await (_OldCoroutine(coroutine) if isinstance(coroutine, GeneratorType) else coroutine), None
    except BaseException as error:
        return None, error


class _OldCoroutine:
    """A plain generator, which asyncio accepts up to Python 3.11."""

    def __init__(self, generator: Generator[Any, Any, Any]) -> None:
        self._generator = generator

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._generator


def _complain() -> None:
    """Log the exception that is being handled."""
    file, line = runtime.caller(1)
    runtime.current().log(runtime.ERROR, file, line, traceback.format_exc().rstrip())
