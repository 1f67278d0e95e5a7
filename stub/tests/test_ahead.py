"""Batches that are handed ahead, some of which are withdrawn."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import Start
from frames import Request
from ring import store
from supervisor import Supervisor

from models import IDENTITY, model

WITHDRAWN, BEGUN = 0x140, 0x140  # in down, in up
EXECUTED, SKIPPED = 0, 2

SLOW = """
    import os
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            if requests[0].request_id():
                while not os.path.exists(requests[0].request_id()):
                    requests[0].is_cancelled()  # which reads the ring
            return [
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests
            ]
"""


def word(stub: Supervisor, offset: int) -> int:
    return int(struct.unpack_from("<Q", stub.up, offset)[0])


def withdraw(stub: Supervisor, batch: int) -> None:
    store(stub.down, WITHDRAWN, "<Q", batch)


def ahead(stub: Supervisor, *requests: Request) -> int:
    """Send a batch with the flag that allows its withdrawal."""
    stub.batch += 1
    stub.send("EXECUTE", stub.batch, stub.execute_body(requests), flags=2)
    return stub.batch


def answer(stub: Supervisor, batch: int, status: int) -> None:
    frame = stub.receive()
    assert (frame.kind, frame.id) == ("EXECUTED", batch)
    executed = stub.executed(frame)
    assert executed.status == status
    assert len(executed.responses) == (0 if status == SKIPPED else 1)


def settle(stub: Supervisor) -> None:
    """Let the stub answer a last batch, after everything that it must return."""
    stub.execute(Request(99, [("IN", np.zeros(1, np.uint8))]))
    assert stub.loans == {}


@pytest.mark.parametrize("count", [4, 5000, 300_000])
def test_withdrawn_batches_are_skipped(start: Start, count: int) -> None:
    """A batch is skipped if the word has its number, and its loans end."""
    stub = start(IDENTITY)
    data = np.arange(count, dtype=np.uint8)
    withdraw(stub, 1)
    assert ahead(stub, Request(5, [("IN", data), ("IN", data)])) == 1
    answer(stub, 1, SKIPPED)
    settle(stub)
    batch = ahead(stub, Request(6, [("IN", data)]))
    answer(stub, batch, EXECUTED)
    assert word(stub, BEGUN) == batch
    settle(stub)


def test_a_long_body(start: Start) -> None:
    """A frame whose body is in a block keeps the flag, and the block is returned."""
    stub = start(IDENTITY)
    withdraw(stub, 1)
    ahead(stub, Request(5, [("IN", np.zeros(10_000, np.uint8))], id="x" * 40_000))
    answer(stub, 1, SKIPPED)
    settle(stub)


def test_frame_without_the_flag_is_not_withdrawn(start: Start) -> None:
    """A frame without the flag is executed regardless of the word, and not recorded as begun."""
    stub = start(IDENTITY)
    withdraw(stub, 1)
    stub.start_batch(Request(5, [("IN", np.zeros(4, np.uint8))]))
    answer(stub, 1, EXECUTED)
    assert word(stub, BEGUN) == 0
    withdraw(stub, 1)
    answer(stub, ahead(stub, Request(6, [("IN", np.zeros(4, np.uint8))])), EXECUTED)


def test_a_frame_that_was_read_early(start: Start, tmp_path: Path) -> None:
    """is_cancelled reads the ring, and a batch ahead can still be withdrawn until it is begun."""
    stub = start(SLOW)
    flag = tmp_path / "go on"
    stub.start_batch(Request(5, [("IN", np.zeros(4, np.uint8))], id=str(flag)))
    batch = ahead(stub, Request(6, [("IN", np.zeros(5000, np.uint8))]))
    deadline = time.monotonic() + 20
    while stub.reader.word(stub.up, 0x0C0) != stub.ring.at:
        assert time.monotonic() < deadline, "the frame is not read"
    assert word(stub, BEGUN) == 0
    withdraw(stub, batch)
    flag.touch()
    answer(stub, 1, EXECUTED)
    answer(stub, batch, SKIPPED)
    settle(stub)


def test_skipped_and_executed_batches_alternate(start: Start) -> None:
    """Skipped and executed batches alternate. Writes to a skipped one's block affect no other."""
    stub = start(
        model("""
            inputs = [request.inputs()[0].as_numpy() for request in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + 1)]) for array in inputs]
        """)
    )
    for number in range(1, 101):
        data = np.full(70_000, number, np.uint8)
        withdraw(stub, number * 2 - 1)
        ahead(stub, Request(5, [("IN", data)]))
        kept = ahead(stub, Request(6, [("IN", data)]))
        answer(stub, kept - 1, SKIPPED)
        frame = stub.receive()
        executed = stub.executed(frame)
        assert frame.id == kept and (executed.responses[0]["OUT"] == data + 1).all()
        for output in executed.responses[0].outputs:
            stub.give_back(output.ticket)
    stub.execute(Request(99, [("IN", np.zeros(1, np.uint8))]))
    assert stub.loans == {}
