"""The rings of the shared files, as docs/protocol.md says where they lie."""

from __future__ import annotations

import mmap
import struct
import time

RING_AT, RING = 0x10000, 0x20000


class Ring:
    """One direction as its producer or its consumer sees it."""

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
        struct.pack_into("<Q", self.memory, 0x048, time.monotonic_ns())
        struct.pack_into("<Q", self.memory, 0x040, self.at)

    def receive(self) -> bytes | None:
        while self.word(self.peer, 0x040) != self.at:
            at = RING_AT + self.at % RING
            size, kind = struct.unpack_from("<IH", self.peer, at)
            assert 24 <= size <= 65536 and self.at % RING + size <= RING
            frame = self.peer[at : at + size]
            self.at += size + -size % 8
            struct.pack_into("<Q", self.memory, 0x0C0, self.at)
            if kind:
                return frame
        return None
