"""When garbage is collected for quiet open requests; test_senders.py tests this in a stub."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pb_stub import forgotten
from pb_stub.forgotten import Forgotten


@dataclass
class Quiet:
    """An open request."""

    touched: float = 0.0
    patience: float = 0.0


class Watch:
    """A Forgotten with a fake clock and without a thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: float = 0.0) -> None:
        self.now = 1000.0
        self.cost = cost
        self.collections: list[float] = []
        self.requests: dict[int, Quiet] = {}
        channel: Any = SimpleNamespace(foreign=False)
        self.channel = channel
        self.forgotten = Forgotten(channel, self.requests)
        self.forgotten._started = True
        monkeypatch.setattr(forgotten, "_now", lambda: self.now)
        monkeypatch.setattr(gc, "collect", self.collect)

    def collect(self) -> None:
        self.collections.append(self.now - 1000)
        self.now += self.cost

    def leave_open(self) -> Quiet:
        request = Quiet()
        self.requests[len(self.requests)] = request
        self.forgotten.watch(request)
        return request

    def until(self, seconds: float) -> None:
        """Run the thread's work until then, while a request is open."""
        while True:
            wait = self.forgotten._next()
            if wait is None or self.now + wait > 1000 + seconds:
                break
            assert wait > 0
            self.now += wait
        self.now = 1000 + seconds


def test_pauses_between_collections_double(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.leave_open()
    watch.until(1000)
    assert watch.collections == [5, 10, 20, 40, 80, 160, 320, 640]


def test_active_sender_causes_no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    request = watch.leave_open()
    for second in range(0, 1000, 4):
        request.touched = watch.now
        watch.until(second + 4)
    assert not watch.collections
    watch.until(1010)
    assert watch.collections == [1001, 1006]


def test_one_collection_is_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    for tenth in range(1, 601):  # ten per second, all of which wait
        watch.leave_open()
        watch.until(tenth / 10)
    assert len(watch.collections) <= 12
    assert min(b - a for a, b in zip(watch.collections, watch.collections[1:])) >= 5


def test_long_collections_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, cost=0.3)
    watch.leave_open()
    watch.until(34)
    assert watch.collections == [5]
    watch.until(100)
    assert watch.collections[1] - watch.collections[0] >= 30


def test_one_that_is_late_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request has been waiting for a long time."""
    watch = Watch(monkeypatch)
    watch.leave_open()
    watch.until(100)
    watch.leave_open()
    watch.until(111)
    assert [at for at in watch.collections if at > 100] == [105, 110]


def test_sleeps_while_nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.requests[1] = Quiet()  # which `execute` has
    assert watch.forgotten._next() is None
    watch.requests.clear()
    for _ in range(3):  # it is woken once
        watch.leave_open()
    assert watch.forgotten._box.qsize() == 1


def test_collector_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.leave_open()
    gc.disable()
    try:
        watch.until(100)
    finally:
        gc.enable()
    assert not watch.collections


def test_forked_children_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.forgotten._started = False
    watch.channel.foreign = True
    before = threading.active_count()
    watch.leave_open()
    assert threading.active_count() == before and watch.forgotten._box.empty()
