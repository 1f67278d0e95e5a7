"""Finds requests that cannot be answered any more, because their sender lies in a circle of references.

Python frees an object without references at once, and circles at a garbage collection, which comes while objects are
made: never in an idle process. There the sender, whose destructor would say that it was dropped, lives for ever, and a
client waits.
"""

from __future__ import annotations

import gc
import threading
import time
from queue import Empty, SimpleQueue
from typing import Mapping, Protocol

from .channel import Channel

#: Seconds for which an open request is quiet before garbage is collected for it the first time.
PATIENCE = 5.0

#: Collections take at most one part in so many of the time: they stop all threads, for long in a large process.
_SHARE = 100

_now = time.monotonic


class Open(Protocol):
    """A request that is open."""

    touched: float  # when the model last sent or looked whether its client has gone
    patience: float  # how long it may be quiet until the next collection for it, in seconds; 0: `execute` has it


class Forgotten:
    """Collects garbage for requests that are quiet for 5 s, then for 10, 20, 40 … s.

    So a stream that sends costs nothing, and one that waits a few collections in its life. One collection is for all,
    and where the model has switched the collector off there is none.

    The thread is started for the first request that is left open, and sleeps while none is. It holds no lock while it
    collects, as the destructors that run then send to the supervisor.
    """

    def __init__(self, channel: Channel, requests: Mapping[int, Open]) -> None:
        self.patience = PATIENCE
        self._channel = channel
        self._requests = requests
        self._earliest = 0.0  # of the next collection
        self._started = False
        self._asleep = True  # until something is put into the box
        self._box: SimpleQueue[None] = SimpleQueue()

    def watch(self, request: Open) -> None:
        """A request was left open. For the main thread."""
        request.touched = _now()
        request.patience = self.patience
        if self._asleep and not self._channel.foreign:
            self._asleep = False
            self._box.put(None)
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="pb_stub forgotten", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self._box.get(timeout=self._next())
            except Empty:
                pass

    def _next(self) -> float | None:
        """Look, and say when to look again; None to sleep until a request is left open."""
        self._asleep = True  # before the look, or a request that is left open meanwhile would be missed
        wait = self._look()
        if wait is not None:
            self._asleep = False
        return wait

    def _look(self) -> float | None:
        """Collect garbage if it is time to; returns the seconds until the next look, None if nothing is open."""
        left = [request for request in list(self._requests.values()) if request.patience]
        if not left:
            return None
        now = _now()
        due = [request for request in left if now - request.touched >= request.patience]
        if due and now >= self._earliest:
            for request in due:
                request.patience *= 2
            if gc.isenabled():
                gc.collect()
            began, now = now, _now()
            self._earliest = now + max(self.patience, _SHARE * (now - began))
        next_due = min(request.touched + request.patience for request in left)
        # Not later than the first who is left open meanwhile is due.
        return min(max(next_due, self._earliest, now) - now, self.patience)
