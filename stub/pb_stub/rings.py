"""Rings: the two rings of frames, without waiting and without locks.

The accelerator has the same class in C. Ordering between processes: see channel.py.
"""

from __future__ import annotations

import mmap
import os
import time

from . import layout, messages
from .errors import ProtocolError
from .fence import WEAKLY_ORDERED, Fence
from .spin import SLOW_YIELD_NS, SPIN_STEP_NS, Spin

_TAIL = layout.TAIL_AT // 8
_POSTED = layout.POSTED_AT // 8
_HEAD = layout.HEAD_AT // 8
_SLEEP = layout.SLEEP_AT // 4
_RING = layout.RING_AT
_SIZE = layout.RING_SIZE
_HEADER = messages.HEADER.size

_now = time.monotonic_ns


class Rings:
    """One thread at a time may read (`take`, `next`, `empty`), and one may write (the others)."""

    def __init__(self, down: mmap.mmap, up: mmap.mmap, life: int, bell: int) -> None:
        self._down = down
        self._up = up
        # Reading an item of a cast view is a single load; struct may read byte by byte.
        self._down32 = memoryview(down).cast("I")
        self._down64 = memoryview(down).cast("Q")
        self._up64 = memoryview(up).cast("Q")
        self._life = life
        self._bell = bell
        self._head = 0
        self._tail = 0
        self._rung: int | None = None  # the value of the peer's sleep word for which the bell was rung
        self._read_fence = Fence()
        self._write_fence = Fence()

    def empty(self) -> bool:
        """Return whether there is nothing to take."""
        return self._down64[_TAIL] == self._head

    def take(self) -> bytes | None:
        """Take the next frame, or return None. Raises ProtocolError if it is invalid."""
        down32 = self._down32
        words = self._down64
        while True:
            head = self._head
            if words[_TAIL] == head:
                return None
            if WEAKLY_ORDERED:
                self._read_fence()
            at = _RING + head % _SIZE
            size = down32[at >> 2]
            if size < 8:
                raise ProtocolError(f"a frame has {size} bytes, want at least 8")
            frame = self._down[at : at + size]
            self._head = head = head + ((size + 7) & ~7)
            if head > words[_TAIL]:
                raise ProtocolError(f"a frame has {size} bytes, {head - words[_TAIL]} beyond the tail")
            if WEAKLY_ORDERED:
                self._read_fence()
            self._up64[_HEAD] = head
            # Checked by the first 8 bytes: a PAD may be shorter than a header.
            if frame[4] | frame[5]:
                if size < _HEADER:
                    raise ProtocolError(f"a frame has {size} bytes, want at least {_HEADER}")
                return frame

    def next(self, spin: Spin) -> bytes | int:
        """Take the next frame, after a spin if needed; returns the time before it if in vain."""
        frame = self.take()
        if frame is not None:
            return frame
        began = _now()
        if not spin.worthwhile():
            return began
        left = spin.budget
        while True:  # in steps, between which signal handlers run
            clean = self._spin(min(left, SPIN_STEP_NS), SLOW_YIELD_NS)
            left -= SPIN_STEP_NS
            if not clean or left <= 0 or not self.empty():
                break
        if clean:
            spin.clean()
        else:
            spin.slow()
        frame = self.take()
        if frame is None:
            return began
        spin.waited(self._down64[_POSTED] - began)
        return frame

    def _spin(self, budget: int, slow: int) -> bool:
        """Yield the core until there is a frame, or for budget ns.

        Returns False if a yield took longer than slow ns.
        """
        words = self._down64
        head = self._head
        began = before = _now()
        while True:
            os.sched_yield()
            now = _now()
            if now - before > slow:
                return False
            if words[_TAIL] != head or now - began > budget:
                return True
            before = now

    def room(self) -> int:
        """Return the free bytes of the up ring.

        The supervisor may be ahead: it has read the frames of a stub that ended before this one.
        """
        return min(_SIZE - (self._tail - self._down64[_HEAD]), _SIZE)

    def write(self, frame: bytes) -> bool:
        """Copy a frame into the ring and advance the tail; False if there is no room now."""
        size = len(frame)
        padded = (size + 7) & ~7
        tail = self._tail
        at = tail % _SIZE
        left = _SIZE - at
        # The rest after a frame is empty or fits a header, so that a PAD always fits.
        if padded != left and padded + _HEADER > left:
            if self.room() < left:
                return False
            pad = messages.HEADER.pack(left, messages.PAD, 0, self._life, 0, 0)
            self._up[_RING + at : _RING + at + _HEADER] = pad
            tail += left
            at = 0
            self._announce(tail)
        if self.room() < padded:
            return False
        at += _RING
        self._up[at : at + size] = frame
        self._announce(tail + padded)
        return True

    def _announce(self, tail: int) -> None:
        words = self._up64
        if WEAKLY_ORDERED:
            self._write_fence()
        words[_POSTED] = _now()
        if WEAKLY_ORDERED:
            self._write_fence()
        words[_TAIL] = self._tail = tail

    def ring(self) -> None:
        """Wake the supervisor if it sleeps and was not yet rung for this sleep.

        OSError if the bell does not work.
        """
        asleep = self._down32[_SLEEP]
        if WEAKLY_ORDERED or (asleep & 1 and asleep != self._rung):
            self._rung = asleep
            try:
                os.write(self._bell, b"\0")
            except (BlockingIOError, BrokenPipeError):
                pass  # rung often enough, or the supervisor has exited, which the reader detects
