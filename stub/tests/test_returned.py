"""Tickets in the return ring that were not out: the stub exits with code 76."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import fakecuda
import numpy as np
import pytest
from conftest import Start
from frames import Request
from supervisor import Supervisor

HERE = Path(__file__).resolve().parent

SOME = np.arange(5000, dtype=np.float32)

#: Answers on a device, or on the host. With "quiet" nothing is sent that needs memory.
MODEL = f"""
import sys, threading
sys.path.append({str(HERE)!r})
import numpy as np
import triton_python_backend_utils as pb_utils
from producer import OnDevice

def answer(request):
    said = request.request_id()
    array = np.zeros(1 if said == "quiet" else 5000, np.float32)
    device = pb_utils.Tensor.from_dlpack("OUT", OnDevice(array, 0)) if said == "device" else None
    return pb_utils.InferenceResponse([device or pb_utils.Tensor("OUT", array)])

def send(request):
    sender = request.get_response_sender()
    try:
        sender.send(answer(request))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    except BaseException as error:
        print("caught", repr(error), file=sys.stderr)

class TritonPythonModel:
    def execute(self, requests):
        ACT
"""

RETURNS = "return [answer(r) for r in requests]"
SENDS = "for r in requests: send(r)"
SENDS_LATER = "for r in requests: threading.Thread(target=send, args=(r,)).start()"
SENDS_AND_JOINS = """threads = [threading.Thread(target=send, args=(r,)) for r in requests]
        for t in threads: t.start()
        for t in threads: t.join()"""

WHERE = "host", "device"

Begin = Callable[..., Supervisor]


def ends_confused(stub: Supervisor, ticket: int) -> None:
    assert stub.wait_exit() == 76, stub.stderr()
    assert f"ticket {ticket:#x} came back and was not out" in stub.stderr()


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Begin:
    def begin(act: str, **settings: Any) -> Supervisor:
        return start(MODEL.replace("ACT", act), environment=fakecuda.environment(tmp_path / "counts"), **settings)

    return begin


def request(number: int, said: str) -> Request:
    return Request(number, [("IN", SOME[:4])], id=said, stays=[])


EACH = [(RETURNS, where, wakes, others) for where in WHERE for wakes in ("quiet", *WHERE) for others in (0, 2)]
EACH += [(act, where, where, 2) for where in WHERE for act in (SENDS, SENDS_LATER, SENDS_AND_JOINS)]


@pytest.mark.parametrize(("act", "where", "wakes", "others"), EACH)
def test_a_ticket_that_comes_back_twice(begin: Begin, act: str, where: str, wakes: str, others: int) -> None:
    """The stub exits without answering, even if a model's send that catches everything finds it."""
    decoupled = act is not RETURNS
    stub = begin(act, decoupled=decoupled)
    ticket = 0
    for number in range(1, 2 + others):
        stub.start_batch(request(number, where))
        answered = False
        outputs: list[Any] = []
        while not answered or not outputs:
            frame = stub.receive()
            answered = answered or frame.kind == "EXECUTED"
            responses = [stub.response(frame)] if frame.kind == "RESPONSE" else stub.executed(frame).responses
            outputs += [output for response in responses for output in response.outputs]
        assert [output.region for output in outputs] == [4 if where == "device" else 2]
        ticket = outputs[0].ticket
    for _ in range(2):
        stub.give_back(ticket)
    stub.start_batch(request(9, wakes))
    ends_confused(stub, ticket)


@pytest.mark.parametrize("ticket", [7, 1 << 31, 1 << 32, 1 << 31 | 1 << 32])
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_ticket_that_never_was(begin: Begin, where: str, ticket: int) -> None:
    stub = begin(RETURNS)
    (output,) = stub.execute(request(1, where)).responses[0].outputs
    if ticket == output.ticket:
        ticket += 1
    stub.give_back(ticket)
    stub.start_batch(request(9, "quiet"))
    ends_confused(stub, ticket)
