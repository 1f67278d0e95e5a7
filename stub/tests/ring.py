"""The rings of the shared files, with the layout in docs/protocol.md."""

from __future__ import annotations

import mmap
import struct
import time

RING_AT, RING = 0x10000, 0x20000


def store(memory: mmap.mmap, offset: int, form: str, value: int) -> None:
    """Store a word that the peer may read at any time; struct.pack_into would store zeros first."""
    word = struct.pack(form, value)
    memory[offset : offset + len(word)] = word


class Ring:
    """One direction, as its producer or its consumer sees it."""

    def __init__(self, memory: mmap.mmap, peer: mmap.mmap) -> None:
        self.memory, self.peer, self.at = memory, peer, 0

    def word(self, memory: mmap.mmap, offset: int) -> int:
        return int(struct.unpack_from("<Q", memory, offset)[0])

    def send(self, frame: bytes) -> None:
        size = len(frame) + -len(frame) % 8
        left = RING - self.at % RING
        if size > left:
            at = RING_AT + self.at % RING
            self.memory[at : at + 8] = struct.pack("<IHH", left, 0, 0)
            self.at += left
        assert self.at + size - self.word(self.peer, 0x0C0) <= RING, "the down ring is full"
        at = RING_AT + self.at % RING
        self.memory[at : at + len(frame)] = frame
        self.at += size
        store(self.memory, 0x048, "<Q", time.monotonic_ns())
        store(self.memory, 0x040, "<Q", self.at)

    def receive(self) -> bytes | None:
        while self.word(self.peer, 0x040) != self.at:
            at = RING_AT + self.at % RING
            size, kind = struct.unpack_from("<IH", self.peer, at)
            assert 24 <= size <= 65536 and self.at % RING + size <= RING
            frame = self.peer[at : at + size]
            self.at += size + -size % 8
            store(self.memory, 0x0C0, "<Q", self.at)
            if kind:
                return frame
        return None
