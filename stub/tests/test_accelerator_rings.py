"""The rings of the accelerator against those in Python: both get the same words and bytes."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import threading
import time
from typing import Any, Callable, Iterator

import pytest
from pb_stub import layout, messages, rings
from pb_stub.errors import ProtocolError
from pb_stub.rings import Rings
from pb_stub.spin import Spin
from test_accelerator import ROUNDS, fast, needed, noise, outcome


class End:
    """One implementation of Rings on files of its own."""

    def __init__(self, make: Callable[..., Rings]) -> None:
        self.down = mmap.mmap(-1, layout.DOWN_SIZE)
        self.up = mmap.mmap(-1, layout.ARENA_AT)
        self.bell, far = os.pipe()
        os.set_blocking(far, False)
        os.set_blocking(self.bell, False)
        self.far = far
        self.rings = make(self.down, self.up, 7, far)

    def word(self, at: int, form: str, value: int) -> None:
        struct.pack_into(form, self.down, at, value)

    def rung(self) -> int:
        try:
            return len(os.read(self.bell, 4096))
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.bell)
        os.close(self.far)


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    both = End(Rings), End(fast.Rings)
    yield both
    for end in both:
        end.close()


@needed
def test_both_write_the_same_bytes(ends: tuple[End, End]) -> None:
    made = random.Random(1)
    read = 0
    for n in range(ROUNDS):
        size = made.choice((24, 31, 32, 100, 4096, 20000, 32792, 65536))
        frame = messages.HEADER.pack(size, 67, 0, 7, 0, n) + noise(made, size - 24) if n < 50 else bytes(size)
        wrote = [end.rings.write(frame) for end in ends]
        assert wrote[0] == wrote[1]
        assert ends[0].rings.room() == ends[1].rings.room()
        tails = [struct.unpack_from("<Q", end.up, layout.TAIL_AT)[0] for end in ends]
        assert tails[0] == tails[1]
        if n < 50:
            assert ends[0].up[layout.RING_AT :] == ends[1].up[layout.RING_AT :]
        if not wrote[0] or made.random() < 0.3:
            read = made.randint(read, tails[0]) if wrote[0] else tails[0]
            for end in ends:
                end.word(layout.HEAD_AT, "<Q", read)


@needed
def test_both_take_the_same_frames(ends: tuple[End, End]) -> None:
    made = random.Random(2)
    tail = taken = 0
    for n in range(ROUNDS):
        size = made.choice((24, 25, 32, 333, 4096, 30000))
        padded = (size + 7) & ~7
        left = layout.RING_SIZE - tail % layout.RING_SIZE
        frames = []
        if padded > left:
            frames.append((struct.pack("<IHH", left, 0, 0), left))
        frames.append((messages.HEADER.pack(size, 2, 0, 7, 0, n) + bytes([n & 255]) * (size - 24), padded))
        for frame, length in frames:
            at = layout.RING_AT + tail % layout.RING_SIZE
            for end in ends:
                end.down[at : at + len(frame)] = frame
            tail += length
        for end in ends:
            end.word(layout.TAIL_AT, "<Q", tail)
        frames_of = [end.rings.take() for end in ends]
        assert frames_of[0] == frames_of[1] is not None
        taken += 1
        heads = [struct.unpack_from("<Q", end.up, layout.HEAD_AT)[0] for end in ends]
        assert heads == [tail, tail]
        assert [end.rings.take() for end in ends] == [None, None]
        assert [end.rings.empty() for end in ends] == [True, True]
    assert taken == ROUNDS


@needed
@pytest.mark.parametrize("size", [0, 7, 8, 23, 24, 100, 65536, 2**32 - 1])
@pytest.mark.parametrize("kind", [0, 2])
@pytest.mark.parametrize("available", [8, 24, 104])
def test_both_reject_the_same_heads(ends: tuple[End, End], size: int, kind: int, available: int) -> None:
    for end in ends:
        end.down[layout.RING_AT : layout.RING_AT + 8] = struct.pack("<IHH", size, kind, 0)
        end.word(layout.TAIL_AT, "<Q", available)
    if size == 2**32 - 1:  # Python first copies the rest of the file
        assert outcome(ends[1].rings.take)[0] is ProtocolError
        return
    assert outcome(ends[0].rings.take) == outcome(ends[1].rings.take)


@needed
@pytest.mark.parametrize("head", [1, 48, 1 << 40, 2**63 - 1])
def test_a_supervisor_that_is_ahead_leaves_room(ends: tuple[End, End], head: int) -> None:
    """It has read the frames of a stub that ended before this one began, in the same files."""
    for end in ends:
        end.word(layout.HEAD_AT, "<Q", head)
        assert end.rings.room() == layout.RING_SIZE
        assert end.rings.write(bytes(100)) is True


@needed
def test_both_ring_once_for_each_sleep(ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "WEAKLY_ORDERED", False)  # otherwise Python always rings
    for word in (0, 1, 1, 2, 3, 3, 4, 7):
        for end in ends:
            end.word(layout.SLEEP_AT, "<I", word)
            end.rings.ring()
        assert ends[0].rung() == ends[1].rung()


@needed
def test_a_frame_is_sent_with_its_bell() -> None:
    end = End(fast.Rings)
    end.word(layout.SLEEP_AT, "<I", 1)
    assert fast.Rings.send(end.rings, bytes(32)) is True
    assert end.rung() == 1
    os.close(end.bell)
    end.word(layout.SLEEP_AT, "<I", 3)
    assert fast.Rings.send(end.rings, bytes(32)) is True  # the reader notices that the supervisor has gone
    os.close(end.far)
    end.word(layout.SLEEP_AT, "<I", 5)
    with pytest.raises(OSError, match="Bad file descriptor"):
        fast.Rings.send(end.rings, bytes(32))


@needed
def test_both_spin_alike(ends: tuple[End, End]) -> None:
    frame = messages.HEADER.pack(24, 2, 0, 7, 0, 1)
    for end in ends:
        end.down[layout.RING_AT : layout.RING_AT + 24] = frame
        spin = Spin(3_000_000)  # several steps
        clean = spin._clean
        began = time.monotonic_ns()
        before = end.rings.next(spin)
        assert isinstance(before, int) and began <= before
        if spin._pause:  # a yield was slow
            assert spin._pause == 4
        else:
            assert time.monotonic_ns() - before >= 3_000_000
            assert spin._clean == clean - 1
        for spin._pause, spin._average, pause in ((5, 0, 4), (0, 3_000_000, 0)):
            assert isinstance(end.rings.next(spin), int)
            assert spin._pause == pause
        assert isinstance(end.rings.next(Spin(0)), int)
        spin._clean = 1
        end.word(layout.TAIL_AT, "<Q", 24)
        assert end.rings.next(spin) == frame  # at once
        assert (spin._clean, spin._average) == (1, 3_000_000)


@needed
@pytest.mark.parametrize(("posted", "average"), [(2**62, 1000 + ((8 * 10**10 - 1000) >> 3)), (0, 1000 + (-1000 >> 3))])
def test_both_record_a_wait(ends: tuple[End, End], posted: int, average: int) -> None:
    frame = messages.HEADER.pack(24, 2, 0, 7, 0, 1)
    for end in ends:
        end.down[layout.RING_AT : layout.RING_AT + 24] = frame
        end.word(layout.POSTED_AT, "<Q", posted)
        spin = Spin(10**10)
        timer = threading.Timer(0.005, end.word, (layout.TAIL_AT, "<Q", 24))
        timer.start()
        while True:
            spin._average, spin._pause, spin._clean = 1000, 0, 1
            found = end.rings.next(spin)
            if found == frame:
                break
        timer.join()
        assert spin._average in (average, 1000)  # 1000: it came right after a slow yield
        assert spin._clean == 64


@needed
def test_a_spin_runs_signal_handlers(ends: tuple[End, End]) -> None:
    for end in ends:

        def handler(_number: int, _frame: Any, end: End = end) -> None:
            end.word(layout.TAIL_AT, "<Q", 24)

        end.down[layout.RING_AT : layout.RING_AT + 24] = messages.HEADER.pack(24, 2, 0, 7, 0, 1)
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            spin = Spin(10**10)
            while not isinstance(end.rings.next(spin), bytes):
                spin._pause = 0
        finally:
            signal.signal(signal.SIGALRM, before)


@needed
@pytest.mark.parametrize("arguments", [(), (b"", b"", 1), (b"", bytearray(8), 1, 1), (bytes(1 << 18), bytes(1 << 18), 1, 1)])
def test_wrong_files_are_rejected(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        fast.Rings(*arguments)
    rings = End(fast.Rings).rings
    for frame in (b"", bytes(23), bytes(layout.RING_SIZE), "text", None):
        with pytest.raises((TypeError, ValueError)):
            rings.write(frame)  # type: ignore[arg-type]
