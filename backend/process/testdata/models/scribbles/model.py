"""Corrupts what it says to the server and what it shares with it. The request's id is the seed."""

import gc
import os
import random
import struct

import triton_python_backend_utils as pb_utils

CORRUPTIONS = 5
RING, RING_SIZE, ARENA = 0x10000, 0x20000, 0x30000
VALUES = [0, 1, 7, 8, 0xFF, 0xFFFF, 0x10000, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1]


class TritonPythonModel:
    def initialize(self, args):
        (self.channel,) = (o for o in gc.get_objects() if type(o).__name__ == "Channel")

    def execute(self, requests):
        seed = requests[0].request_id()
        if seed != "good":
            self.random = random.Random(seed)
            self.channel.publish = self.publish
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]

    def publish(self, frame):
        """Stand in for the channel's own, once."""
        del self.channel.publish
        if self.random.random() < 0.1:
            self.truncate()
        for _ in range(CORRUPTIONS):
            frame = self.corrupt(bytearray(frame))
        self.send(bytes(frame))
        if self.random.random() < 0.2:
            self.send(bytes(frame))

    def send(self, frame):
        """Write a frame as the channel does, whatever it says of itself."""
        channel = self.channel
        with channel._sending:
            channel._write(frame[:65536])
        channel._rung = None
        channel._ring()

    def truncate(self):
        for fd in os.listdir("/proc/self/fd"):
            try:
                if os.fstat(int(fd)).st_size > 1 << 26:
                    os.ftruncate(int(fd), self.random.choice([0, 4096, RING, ARENA]))
            except OSError:
                pass

    def corrupt(self, frame):
        draw = self.random
        up = self.channel.up
        way = draw.randrange(12)
        if way == 0:
            frame[draw.randrange(len(frame))] = draw.randrange(256)
        elif way == 1:
            at = draw.randrange(len(frame) // 4) * 4
            frame[at : at + 4] = struct.pack("<I", draw.choice(VALUES) & 0xFFFFFFFF)
        elif way in (2, 3):
            at = draw.randrange(len(frame) // 8) * 8
            frame[at : at + 8] = struct.pack("<Q", draw.choice(VALUES))
        elif way == 4:
            frame[4:6] = struct.pack("<H", draw.choice([0, 1, 2, 5, 6, 64, *range(65, 76), 255, 65535]))
        elif way == 5:
            del frame[max(24, draw.randrange(len(frame))) :]
        elif way == 6:
            frame += draw.getrandbits(8 * 100).to_bytes(100, "little")
        elif way == 7:
            struct.pack_into("<Q", up, draw.choice([0, 8, 0x40, 0x48, 0x80, 0xC0, 0x100, 0x140]), draw.choice(VALUES))
        elif way == 8:
            word = self.channel._tail + 8 * draw.randrange(-5000, 5000)
            struct.pack_into("<Q", up, draw.choice([0x40, 0xC0, 0x100]), word & (2**64 - 1))
        elif way == 9:
            at = draw.randrange(RING, RING + RING_SIZE - 64)
            up[at : at + 64] = draw.getrandbits(512).to_bytes(64, "little")
        elif way == 10:
            at = RING + (self.channel._tail - 8 * draw.randrange(20)) % RING_SIZE
            struct.pack_into("<Q", up, at, draw.choice(VALUES))
        else:
            size = draw.choice([24, 32, 64, 1000, 40000])
            body = draw.getrandbits(8 * size).to_bytes(size, "little")
            head = struct.pack("<IHHIIQ", 24 + size, draw.randrange(64, 74), draw.randrange(2), self.channel.life, 0, draw.choice(VALUES))
            self.send(head + body)
        if draw.random() < 0.5 and len(frame) >= 24:
            frame[:4] = struct.pack("<I", len(frame))  # consistent, so that more of it is looked at
        return frame
