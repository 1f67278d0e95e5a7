"""The accelerator in several threads at once. A Python without the GIL runs them at the same time."""

from __future__ import annotations

import gc
import os
import random
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest
from blocks import WANTED, Stand, World
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.tensor import Tensor
from pb_stub import accelerator, layout, messages
from pb_stub.batch import Answers
from pb_stub.loans import ZERO_COPY_MIN
from ring import Ring
from test_accelerator import received
from test_accelerator_rings import End

ROUNDS = 5_000 if os.environ.get("NEREID_TEST_LONG") else 500
THREADS = 4

fast = accelerator.module
needed = pytest.mark.skipif(fast is None, reason=accelerator.reason)


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run each call in a thread of its own, all at once, and return their results."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(n: int) -> None:
        try:
            barrier.wait()
            results[n] = calls[n]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def outputs_of(frame: bytes) -> list[tuple[Any, ...]]:
    """Decode the outputs of a RESPONSE: region, code, shape, ticket and offset, bytes in the frame."""
    assert struct.unpack_from("<I", frame)[0] == len(frame)
    at = 32 + 8 * messages.RESPONSE_BEGIN.unpack_from(frame, 24)[0]
    count = messages.RESPONSE_HEAD.unpack_from(frame, at)[2]
    at += 32
    found = []
    for _ in range(count):
        name, code, rank, region, offset, size, ticket, _, _ = messages.DESCRIPTOR.unpack_from(frame, at)
        assert name == WANTED["OUT0"]
        shape = struct.unpack_from(f"<{rank}q", frame, at + 40)
        data = frame[offset : offset + size] if region == layout.REGION_FRAME else (offset, size)
        found.append((region, code, shape, ticket, data))
        at += 40 + 8 * rank
    return found


@pytest.mark.skipif("t" not in sys.abiflags, reason="this Python has the GIL")
@needed
def test_the_gil_stays_off() -> None:
    path = os.pathsep.join(map(str, (Path(accelerator.__file__).parents[1], Path(strings_file()).parents[1])))
    code = "import sys; from pb_stub.outgoing import accelerate as a; a(); from pb_stub import accelerator as b; print(b.module is not None, sys._is_gil_enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    environment["PYTHONPATH"] = path
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "False"], "")


def strings_file() -> str:
    from c_python_backend_utils import strings

    return strings.__file__


@needed
@pytest.mark.parametrize("code", [2, 13])
def test_all_threads_get_the_same_array(code: int) -> None:
    data = struct.pack("<I", 4) + b"abcd"
    for _ in range(ROUNDS):
        tensor = received("IN0", data, code, (1,) if code == 13 else (8,))
        arrays = together(*[tensor.as_numpy] * THREADS)
        assert all(array is arrays[0] for array in arrays)
        assert arrays[0].tolist() == ([b"abcd"] if code == 13 else list(data))


@needed
def test_a_loan_gets_one_array_and_is_returned_once() -> None:
    world = World(1)
    world.made = random.Random(3)
    tickets = 0
    for _ in range(ROUNDS):
        while world.arrive() is None:
            world.inputs.clear()
        (tensor,) = world.inputs
        size = tensor._size
        tensor._shape = (size // {11: 4, 5: 8, 2: 1}[tensor._code],)
        arrays = together(*[tensor.as_numpy] * THREADS)
        assert all(array is arrays[0] for array in arrays)
        assert len(world.loans.lent) <= (size >= ZERO_COPY_MIN)
        arrays[0][0] = 1
        world.inputs.clear()
        del tensor, arrays
        tickets += 1
        assert not world.loans.lent
        assert len(world.channel.released) == tickets
    assert sorted(world.channel.released) == list(range(101, 101 + tickets))


def answer(world: World, response: InferenceResponse) -> bytes:
    answers = Answers(world.channel, world.loans, world.pool)
    answers.gather_one(9, response, WANTED, True)
    return answers.pack_response(9)


@needed
def test_tensors_are_sent_while_they_change() -> None:
    """Each frame can be decoded, and has bytes that the tensors had."""
    contents: list[np.ndarray] = [np.arange(6, dtype=np.int32), np.full((2, 2), 7, np.int64), np.array([b"x" * 40], np.object_)]
    raw = [contents[0].tobytes(), contents[1].tobytes(), struct.pack("<I", 40) + b"x" * 40]
    shared = [Tensor("OUT0", contents[0]) for _ in range(3)]
    response = InferenceResponse(shared)

    def change() -> None:
        made = random.Random(1)
        for _ in range(10 * ROUNDS):
            Tensor.__init__(made.choice(shared), "OUT0", made.choice(contents))

    def look() -> None:
        for _ in range(10 * ROUNDS):
            for tensor in shared:
                found = tensor.as_numpy()
                assert any(found is array for array in contents)

    def send() -> None:
        world = World(1)
        for _ in range(3 * ROUNDS):
            found = outputs_of(answer(world, response))
            assert len(found) == 3
            for region, code, shape, _, data in found:
                assert region == layout.REGION_FRAME
                assert code in (8, 9, 13)
                assert shape in ((6,), (2, 2), (1,))
                assert data in raw

    together(change, look, send, send)


@needed
def test_lists_of_outputs_change_while_they_are_sent() -> None:
    small, large = np.arange(6, dtype=np.int32), np.arange(3000, dtype=np.int64)
    given = [Tensor("OUT0", small)]
    response = InferenceResponse(given)
    outputs = response._outputs
    names = ["IN0", "IN1"]

    def change() -> None:
        made = random.Random(1)
        for _ in range(20 * ROUNDS):
            for some in (given, outputs):
                if len(some) < 5 and made.random() < 0.6:
                    some.insert(0, Tensor("OUT0", made.choice((small, small, large))))
                elif len(some) > 1:
                    del some[made.randrange(len(some))]

    def construct() -> None:
        for _ in range(10 * ROUNDS):
            made = InferenceResponse(given)
            assert all(type(tensor) is Tensor for tensor in made.output_tensors())
            import triton_python_backend_utils as utils

            assert type(utils.get_output_tensor_by_name(response, "OUT0")) in (Tensor, type(None))
            assert utils.get_output_tensor_by_name(response, names[0]) is None

    def send() -> None:
        world = World(1)
        for _ in range(2 * ROUNDS):
            for region, code, shape, ticket, data in outputs_of(answer(world, response)):
                if region == layout.REGION_FRAME:
                    assert (code, shape, data) == (8, (6,), small.tobytes())
                else:
                    assert (code, shape) == (9, (3000,))
                    assert block_bytes(world, *data) == large.tobytes()
                    give_back(world, ticket)
        world.pool.collect()
        assert world.pool._outstanding == 0

    together(change, construct, send, send)


def block_bytes(world: World, offset: int, size: int) -> bytes:
    mapping = world.pool._mappings.over(offset, size)
    assert mapping is not None
    return mapping.map[offset - mapping.start : offset - mapping.start + size]


def give_back(world: World, ticket: int) -> None:
    """Return a block, as the supervisor does."""
    words = world.channel.down64
    at = words[layout.RETURNED_AT // 8]
    words[layout.RETURN_RING_AT // 8 + at % layout.RETURN_RING_SLOTS] = ticket
    words[layout.RETURNED_AT // 8] = at + 1


@needed
def test_threads_share_a_pool() -> None:
    world = World(1)
    supervisor = threading.Lock()

    def send(n: int) -> None:
        made = random.Random(n)
        kept = []
        for _ in range(4 * ROUNDS):
            value = made.randrange(1 << 30)
            array = np.full(made.choice((2000, 2000, 9000, 20000)), value, np.int32)
            tensor = Tensor("OUT0", array)
            if made.random() < 0.2:
                kept.append(tensor)
                del kept[:-3]
            ((region, _, _, ticket, data),) = outputs_of(answer(world, InferenceResponse([tensor])))
            assert region == layout.REGION_ARENA
            assert block_bytes(world, *data) == array.tobytes()
            with supervisor:
                give_back(world, ticket)

    together(*(lambda n=n: send(n) for n in range(THREADS)))
    gc.collect()
    world.pool.collect()
    assert world.pool.used == world.pool._outstanding == 0
    assert not any(world.pool._references)


@needed
def test_threads_share_the_rings() -> None:
    """Each frame arrives whole, those of one thread in their order, and a bell rings for each sleep."""
    end = End(fast.Rings)
    ring = Ring(end.down, end.up)
    count = 4 * ROUNDS

    def send(n: int) -> int:
        made = random.Random(n)
        for number in range(count):
            size = made.choice((24, 25, 100, 4096, 30000))
            frame = messages.HEADER.pack(size, 67, 0, 7, 0, number << 8 | n) + bytes([(number + n) & 255]) * (size - 24)
            while not end.rings.send(frame):  # type: ignore[attr-defined]
                end.rings.ring()
            assert 0 <= end.rings.room() <= layout.RING_SIZE
        return count

    def read() -> list[int]:
        seen = [0] * THREADS
        sleep = 0
        while min(seen) < count:
            end.word(layout.SLEEP_AT, "<I", sleep := (sleep + 1) & 0xFFFF)
            frame = ring.receive()
            if frame is None:
                continue
            n, number = frame[16] % 256, int.from_bytes(frame[17:24], "little")
            assert number == seen[n]
            assert frame[24:] == bytes([(number + n) & 255]) * (len(frame) - 24)
            seen[n] += 1
            end.rung()
        return seen

    results = together(read, *(lambda n=n: send(n) for n in range(THREADS)))
    assert results == [[count] * THREADS, *[count] * THREADS]
    end.close()


def lived(seed: int) -> list[str]:
    """Return what happens in a random life, up to a ticket that was not out."""
    world = World(seed)
    lines = []
    for _ in range(200):
        step = str(world.step())
        lines.append(step)
        if "was not out" in step:
            return lines
        lines.append(str(world.state()))
    return lines


@needed
def test_instances_lend_and_return_as_if_alone() -> None:
    seeds = range(1, 1 + 4 * THREADS)
    alone = [lived(seed) for seed in seeds]

    def some(n: int) -> list[list[str]]:
        return [lived(seed) for seed in seeds[n::THREADS]]

    found = together(*(lambda n=n: some(n) for n in range(THREADS)))
    for n in range(THREADS):
        assert found[n] == alone[n::THREADS]


@needed
def test_tickets_are_returned_by_any_thread() -> None:
    """None is lost if a batch ends while another thread drops inputs."""
    world = World(1)
    channel: Any = world.channel
    assert isinstance(channel, Stand)
    received_tickets: list[int] = []

    def drop(n: int) -> None:
        from pb_stub.loans import Loan

        for number in range(4 * ROUNDS):
            Loan(world.loans, n << 32 | number, 0, 100)

    def execute() -> None:
        for _ in range(4 * ROUNDS):
            channel.executing = True
            channel.executing = False
            received_tickets.extend(channel.take_tickets())

    together(execute, *(lambda n=n: drop(n) for n in range(1, THREADS)))
    assert not channel.tickets
    got = sorted(received_tickets + channel.released)
    assert got == [n << 32 | number for n in range(1, THREADS) for number in range(4 * ROUNDS)]
