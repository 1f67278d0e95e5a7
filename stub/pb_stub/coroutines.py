"""The event loop for models whose `execute` is `async def`. It lives in a thread of its own, from the first use on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Coroutine

is_coroutine = asyncio.iscoroutine


class EventLoop:
    """Runs coroutines; a model's tasks go on between batches."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end and return its result, or raise its exception, in the thread that calls."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            threading.Thread(target=self._loop.run_forever, name="pb_stub event loop", daemon=True).start()
        result, error = asyncio.run_coroutine_threadsafe(_guarded(coroutine), self._loop).result()
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """End the loop; what is pending is dropped."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Keep SystemExit and KeyboardInterrupt from ending the loop's thread, with all that waits for it."""
    try:
        return await coroutine, None
    except BaseException as error:
        return None, error
