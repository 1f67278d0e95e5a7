"""A random life of loans and blocks: the same for each seed, whatever implementation runs it.

`python blocks.py SEED STEPS` prints it. The test compares what Python and the accelerator print.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import struct
import sys
from collections import deque
from typing import Any, cast

import numpy as np
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.tensor import Tensor
from pb_stub import layout, messages
from pb_stub.batch import Answers
from pb_stub.channel import Channel
from pb_stub.loans import Loan, Loans
from pb_stub.outgoing import accelerate
from pb_stub.pool import Pool, PoolExhausted

accelerate()

PLACES = 5
WANTED = {"OUT0": 2}


class Stand:
    """Replaces the channel, whose handling of tickets it has."""

    life = 7
    _foreign = foreign = False
    executing = False
    give_back: Any = Channel.give_back
    take_tickets: Any = Channel.take_tickets
    collect_tickets: Any = Channel.collect_tickets

    def __init__(self) -> None:
        self.tickets: deque[int] = deque()
        self._collecting: dict[int, list[int]] = {}
        self.released: list[int] = []
        self.up64 = memoryview(mmap.mmap(-1, layout.DOWN_SIZE)).cast("Q")
        self.down64 = memoryview(mmap.mmap(-1, layout.DOWN_SIZE)).cast("Q")

    def _release_tickets(self) -> None:
        self.released += self.take_tickets()

    def distrust(self, text: str) -> None:
        raise RuntimeError(text)


class World:
    def __init__(self, seed: int) -> None:
        self.made = random.Random(seed)
        self.channel = channel = cast("Any", Stand())
        requests = os.memfd_create("requests")
        os.ftruncate(requests, 1 << 27)
        self.file = mmap.mmap(requests, 1 << 27)
        up = os.memfd_create("up")
        os.ftruncate(up, 1 << 24)
        self.loans = Loans(channel, requests)
        self.pool = Pool(channel, up, 1 << 20, 1 << 16, 1 << 21)
        self.inputs: list[Tensor] = []
        self.kept: list[np.ndarray] = []
        self.outputs: list[Tensor] = []
        self.sent: list[int] = []  # tickets at the supervisor
        self.ticket = 100
        self.places: dict[int, int] = {}  # by ticket
        self.beside = 0

    def step(self) -> Any:
        name = self.made.choice(STEPS)
        return name, getattr(self, name)()

    def arrive(self) -> Any:
        made = self.made
        size = made.choice((100, 65536, 65536, 65536 + 64, 98304, 98304))
        for ticket in self.channel.released:
            self.places.pop(ticket, None)
        place = made.randrange(PLACES)
        if place in self.places.values():
            return None
        offset = (0, 1 << 17, (1 << 25) - 65536, 1 << 26, 3 << 25)[place] + made.choice((0, 0, 0, 0, 8, 16, 4096))
        tensor = Tensor.__new__(Tensor)
        tensor._array = tensor._data = tensor._sent = None
        self.ticket += 1
        self.places[self.ticket] = place
        self.file[offset : offset + 8] = made.getrandbits(64).to_bytes(8, "little")
        tensor._origin = Loan(self.loans, self.ticket, offset, size)
        tensor._offset, tensor._size, tensor._element = 0, size, 0
        tensor._name = made.choice(("IN0", "IN1"))
        tensor._code, width = made.choice(((11, 4), (5, 8), (2, 1)))
        tensor._shape = (size // width + (made.random() < 0.02) * (1 << 28),)
        self.inputs.append(tensor)
        return tensor._name, offset, size

    def write(self) -> Any:
        array = self._array()
        if array is not None and array.size:
            array[self.made.randrange(len(array))] = 9
        return array is not None

    def look(self) -> Any:
        array = self._array()
        return None if array is None else (array.dtype.str, array.shape, hash(array.tobytes()) & 0xFFFF, array.flags.writeable)

    def keep(self) -> Any:
        array = self._array()
        if array is not None:
            self.kept.append(self.made.choice((array, array[5:], array[::2])))
        return array is not None

    def drop(self) -> None:
        for some in (self.inputs, self.kept, self.outputs):
            while len(some) > 4 or (some and self.made.random() < 0.3):
                del some[self.made.randrange(len(some))]

    def fault(self) -> None:
        memory = mmap.mmap(-1, 1 << 16)
        memory[:] = bytes(1 << 16)

    def collect(self) -> None:
        gc.collect()

    def begin(self) -> None:
        self.channel.executing = not self.channel.executing

    def returned(self) -> Any:
        words = self.channel.down64
        made = self.made
        count = made.randrange(len(self.sent) + 1)
        for _ in range(count):
            at = words[layout.RETURNED_AT // 8]
            words[layout.RETURN_RING_AT // 8 + at % layout.RETURN_RING_SLOTS] = self.sent.pop(made.randrange(len(self.sent)))
            words[layout.RETURNED_AT // 8] = at + 1
        return count

    def confuse(self) -> Any:
        """Return a ticket that is not out."""
        if self.made.random() > 0.02:
            return None
        words = self.channel.down64
        at = words[layout.RETURNED_AT // 8]
        words[layout.RETURN_RING_AT // 8 + at % layout.RETURN_RING_SLOTS] = self.made.choice((2**63, 5, 1 << 32, 2**64 - 1, 3 << 31))
        words[layout.RETURNED_AT // 8] = at + 1
        return "confused"

    def send(self) -> Any:
        made = self.made
        tensors = [self._output() for _ in range(made.choice((1, 1, 2, 3)))]
        response = InferenceResponse(tensors)
        for tensor in tensors:
            if made.random() < 0.4:
                self.outputs.append(tensor)
        answers = Answers(self.channel, self.loans, self.pool)
        beside = answers.place_beside

        def counted(*args: Any) -> Any:
            self.beside += 1
            return beside(*args)

        answers.place_beside = counted  # type: ignore[method-assign,assignment]
        try:
            answers.gather_one(9, response, WANTED, True)
            if made.random() < 0.1:
                answers.withdraw()
                return "withdrawn"
            frame = answers.pack_response(9)
        except (PoolExhausted, RuntimeError) as error:
            answers.withdraw()
            return type(error), str(error)
        return self._read(frame)

    def _read(self, frame: bytes) -> Any:
        """Take the tickets of blocks, and copy their bytes."""
        tickets = messages.RESPONSE_BEGIN.unpack_from(frame, 24)[0]
        self.channel.released += struct.unpack_from(f"<{tickets}Q", frame, 32)
        at = 32 + 8 * tickets
        outputs = messages.RESPONSE_HEAD.unpack_from(frame, at)[2]
        at += 32
        found: list[Any] = [frame]
        for _ in range(outputs):
            _, _, rank, region, offset, size, ticket, _, _ = messages.DESCRIPTOR.unpack_from(frame, at)
            at += 40 + 8 * rank
            if region == layout.REGION_ARENA:
                self.sent.append(ticket)
                mapping = self.pool._mappings.over(offset, size)
                assert mapping is not None
                found.append(hash(mapping.map[offset - mapping.start : offset - mapping.start + size]) & 0xFFFF)
        return found

    def _array(self) -> np.ndarray | None:
        if not self.inputs:
            return None
        try:
            return self.made.choice(self.inputs).as_numpy()
        except (TypeError, ValueError):
            return None

    def _output(self) -> Tensor:
        made = self.made
        kind = made.randrange(10)
        if kind == 0 and self.inputs:
            tensor = made.choice(self.inputs)
            tensor._name = "OUT0"
            return tensor
        if kind == 1 and self.outputs:
            return made.choice(self.outputs)
        if kind == 2:
            return Tensor("OUT0", np.array([b"x" * made.choice((3, 9000))], np.object_))
        if kind <= 6:
            array = self._array() if made.random() < 0.8 or not self.kept else made.choice(self.kept)
            if array is not None and array.ndim == 1:
                return Tensor("OUT0", made.choice((array, array, array[3:], array.reshape(1, -1), array[16:10000], array[::2], array[:100])))
        own = np.full(made.choice((3, 1025, 5000, 16384, 70000)), made.randrange(9), np.float32)
        return Tensor("OUT0", made.choice((own, own, own.reshape(1, -1), own[1:], np.frombuffer(own.tobytes(), np.int8))))

    def state(self) -> Any:
        pool = self.pool
        return (
            pool.used, pool.backed, pool._outstanding, pool._collected, pool._most_used, pool._free, pool._references, pool._lent,
            pool._generations, list(self.channel.tickets), self.channel.released, len(self.loans.lent), self.loans._copying,
            self.channel.up64[layout.COLLECTED_AT // 8],
        )  # fmt: skip


STEPS = ("arrive", "arrive", "arrive", "look", "look", "keep", "write", "send", "send", "send", "drop", "fault", "begin", "returned", "confuse", "collect")


def main() -> None:
    seed, steps = int(sys.argv[1]), int(sys.argv[2])
    for world in range(steps // 200):
        live(World(seed + world))


def live(world: World) -> None:
    for _ in range(200):
        step = world.step()
        if "was not out" in str(step):  # which ends a stub
            print(step)
            return
        print(step, world.state())
    world.inputs.clear()
    world.kept.clear()
    world.outputs.clear()
    gc.collect()
    print("end", world.state())
    print(world.beside, file=sys.stderr)


if __name__ == "__main__":
    main()
