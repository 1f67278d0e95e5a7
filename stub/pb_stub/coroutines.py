"""The event loop for models whose `execute` is `async def`. It lives in a thread of its own, from the first use on."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import Any, Callable, Coroutine

is_coroutine = asyncio.iscoroutine


class EventLoop:
    """Runs coroutines; a model's tasks go on between batches."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
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
                self._complain(traceback.format_exc())

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end and return its result, or raise its exception, in the thread that calls."""
        result, error = asyncio.run_coroutine_threadsafe(_guarded(coroutine), self._loop).result()
        if error is not None:
            raise error
        return result

    def start(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, BaseException | None], None], most: int | None
    ) -> None:
        """Let a coroutine run on, and return when fewer than most that were started so are running.

        Its result or exception is handed to ended, in the loop's thread.
        """
        with self._fewer:
            self._running += 1
        asyncio.run_coroutine_threadsafe(self._run_on(coroutine, ended), self._loop)
        if most is not None:
            with self._fewer:
                self._fewer.wait_for(lambda: self._running < most)

    async def _run_on(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, BaseException | None], None]
    ) -> None:
        result, error = await _guarded(coroutine)
        try:
            ended(result, error)
        except BaseException:
            self._complain(traceback.format_exc())
        finally:
            with self._fewer:
                self._running -= 1
                self._fewer.notify()

    def stop(self) -> None:
        """End the loop; what is pending is dropped."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Keep SystemExit and KeyboardInterrupt from ending the loop's thread, with all that waits for it."""
    try:
        return await coroutine, None
    except BaseException as error:
        return None, error
