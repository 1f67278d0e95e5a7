"""A thread that reads the ring while no other thread does.

A thread that waits for a frame reads for all threads, so most stubs do not need this one. It is
started for the first user that needs frames without waiting for them: readiness checks during
`execute`.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Hashable

from .channel import Channel, Mailbox
from .errors import ForeignProcess, StubError

_MARK = b"."


class Service:
    """Reads as long as needed.

    `need` and `enough` never wait and may be called anywhere, including destructors and signal
    handlers: they only access a set and two queues, each in one atomic step.
    """

    def __init__(self, channel: Channel, instance: str) -> None:
        self._channel = channel
        self._instance = instance
        self._needs: set[Hashable] = set()
        self._box: Mailbox[bytes] = SimpleQueue()  # a mark in it makes the thread check _needs
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._reads = False  # whether the thread reads
        self._started: list[None] = []

    def need(self, key: Hashable) -> None:
        """Read the ring until `enough` is called with the same key."""
        self._needs.add(key)
        if not self._reads:
            self._calls.put(None)
            self._start()

    def enough(self, key: Hashable) -> None:
        """Withdraw a need; an unknown key is not an error."""
        self._needs.discard(key)
        if not self._needs:
            self._box.put(_MARK)

    def end(self) -> None:
        """End with the instance."""
        self._calls.put(None)

    def _start(self) -> None:
        if self._started or self._channel.foreign:
            return
        self._started.append(None)
        if len(self._started) == 1:  # otherwise another one came first
            threading.Thread(target=self._run, name="pb_stub service", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                self._calls.get()
                if self._channel.foreign:
                    return
                self._read()
        except ForeignProcess:
            pass
        except StubError as error:
            self._channel.lose(self._instance, error)

    def _read(self) -> None:
        while self._needs:
            self._reads = True
            while self._needs:
                self._channel.receive(self._box)
            # A thread that arrives after this finds that no thread reads, and calls.
            self._reads = False
