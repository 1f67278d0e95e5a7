"""The event loop for models whose `execute` is `async def`. It lives in a thread of its own, from the first use on."""

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

#: Is told what a coroutine has returned or raised.
Ended = Callable[[Any, Optional[BaseException]], None]


class EventLoop:
    """Runs coroutines; a model's tasks go on between batches."""

    def __init__(self) -> None:
        self._running = 0  # coroutines that were started
        self._fewer = threading.Condition()  # guards it; notified when one has ended
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        threading.Thread(target=self._serve, name="pb_stub event loop", daemon=True).start()

    def _serve(self) -> None:
        """Run the loop, past a SystemExit or KeyboardInterrupt of a task of the model: others wait for the loop."""
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException:
                _complain()

    def run(self, batch: int, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine of a batch to its end and return its result, or raise its exception, in this thread."""
        future = asyncio.run_coroutine_threadsafe(_of_batch(batch, coroutine), self._loop)
        result, error = openly(future.result)
        if error is not None:
            raise error
        return result

    def start(self, batch: int, coroutine: Coroutine[Any, Any, Any], ended: Ended, most: int | None) -> None:
        """Let the coroutine of a batch run on, and return when fewer than most that were started so are running.

        Its result or exception is handed to ended, in the loop's thread.
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
        """End the loop; pending tasks are dropped."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _of_batch(batch: int, coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    BATCH.set(batch)
    return await _guarded(coroutine)


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Keep SystemExit and KeyboardInterrupt from ending the loop's thread, with all that waits for it."""
    try:
        return await (_OldCoroutine(coroutine) if isinstance(coroutine, GeneratorType) else coroutine), None
    except BaseException as error:
        return None, error


class _OldCoroutine:
    """A plain generator as asyncio accepts it up to Python 3.11."""

    def __init__(self, generator: Generator[Any, Any, Any]) -> None:
        self._generator = generator

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._generator


def _complain() -> None:
    """Log the exception that is being handled."""
    file, line = runtime.caller(1)
    runtime.current().log(runtime.ERROR, file, line, traceback.format_exc().rstrip())
