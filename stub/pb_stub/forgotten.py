"""Finds requests that can no longer be answered because their sender is in a reference cycle.

Python frees an object without references at once, but cycles only during garbage collection, which
is triggered by allocations and so never happens in an idle process. There, the sender, whose
destructor would report that it was dropped, lives forever, and a client waits.
"""

from __future__ import annotations

import gc
import threading
import time
from queue import Empty, SimpleQueue
from typing import Mapping, Protocol

from .channel import Channel

#: Seconds that an open request is quiet before the first garbage collection for it.
PATIENCE = 5.0

#: Collections take at most 1/_SHARE of the time: they stop all threads, for long in a large
#: process.
_SHARE = 100

_now = time.monotonic


class Open(Protocol):
    """An open request."""

    touched: float  # when the model last sent or checked for cancellation
    patience: float  # seconds it may be quiet until the next collection for it; 0: `execute` has it


class Forgotten:
    """Collects garbage for requests that are quiet for 5 s, then for 10, 20, 40 … s.

    So a stream that sends costs nothing, and a waiting one only a few collections. One collection
    is for all requests. If the model has disabled the collector, there are no collections.

    The thread starts with the first request that is left open, and sleeps while none is open. It
    holds no lock during a collection, because destructors then send to the supervisor.
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
        """Watch a request that was left open. For the main thread."""
        request.touched = _now()
        request.patience = self.patience
        if self._asleep and not self._channel.foreign:
            self._asleep = False
            self._box.put(None)
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="pb_stub forgotten", daemon=True).start()

    def end(self) -> None:
        """End with the instance."""
        self._box.put(None)

    def _run(self) -> None:
        while not self._channel.foreign:
            try:
                self._box.get(timeout=self._next())
            except Empty:
                pass

    def _next(self) -> float | None:
        """Check, and return the time of the next check.

        None: sleep until a request is left open.
        """
        self._asleep = True  # before the check, or a request left open meanwhile would be missed
        wait = self._look()
        if wait is not None:
            self._asleep = False
        return wait

    def _look(self) -> float | None:
        """Collect if it is due.

        Returns the seconds until the next check, None if nothing is open.
        """
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
        # No later than the first request that may be left open meanwhile is due.
        return min(max(next_due, self._earliest, now) - now, self.patience)
