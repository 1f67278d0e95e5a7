"""A device is lost while in use: requests that need it fail, loans are returned, others succeed."""

from __future__ import annotations

import time
from pathlib import Path

import fakecuda
import pytest
from conftest import Begin, Start
from devicemodels import CANNOT_OPEN, HEAD, KEEPS, SOME, Maker
from fakecuda import State
from frames import Executed, Request
from supervisor import Supervisor

#: Answers from the host, or with a tensor that it has had on a device since "make".
COMPUTES = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r.request_id(), r.inputs()[0].as_numpy()) for r in requests]

    def answer(self, said, x):
        if said == "make":
            self.kept = {device: [on_device(x * 2, device) for _ in range(9)] for device in (0, 1)}
        return InferenceResponse([self.kept[int(said)].pop() if said in "01" else Tensor("OUT", x * 2)])
"""

CODES = ["719 0", "700 0", "214 0", "46 0", "999 0"]


class Lost:
    """The file by which the fake loses devices, only for the stub."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def say(self, what: str) -> None:
        fresh = self.path.with_suffix(".new")  # appears atomically
        fresh.write_text(what)
        fresh.replace(self.path)


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path / "lost")


@pytest.fixture
def begin(start: Start, tmp_path: Path, lost: Lost) -> Begin:
    environment = fakecuda.environment(tmp_path / "counts", lost=lost.path)
    return lambda source: start(HEAD + source, environment=environment)


def ask(stub: Supervisor, *said: str, stays: bool = True) -> Executed:
    places: list[str] | None = [] if stays else None
    return stub.execute(*(Request(n + 1, [("IN", SOME)], id=what, stays=places) for n, what in enumerate(said)))


def ends(stub: Supervisor) -> None:
    assert stub.finalize()["error"] == "" and stub.wait_exit() == 0
    # The producer of the tensors says that it cannot free them.
    assert "/pb_stub/" not in stub.stderr() and "/c_python_backend_utils/" not in stub.stderr(), stub.stderr()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("stays", [True, False])
def test_where_the_model_computes(begin: Begin, lost: Lost, code: str, stays: bool) -> None:
    """Responses from the lost device are errors, others of the batch are not; tickets return."""
    stub = begin(COMPUTES)
    out = [o for r in ask(stub, "make").responses for o in r.outputs]
    out += [o for r in ask(stub, "0", "1", stays=stays).responses for o in r.outputs]
    assert [o.region for o in out] == [2] + [4 if stays else 2] * 2
    lost.say(code)
    for _ in range(3):
        executed = ask(stub, "0", "host", "1", stays=stays)
        first, second, third = executed.responses
        assert first.error and not second.error and not third.error
        assert (second["OUT"] == SOME * 2).all()
        out += [o for r in (second, third) for o in r.outputs]
    for output in out:
        stub.give_back(output.ticket)
    executed = ask(stub, "0")
    assert executed.status == 1 and "Failed to process the request(s)" in executed.text
    assert len(stub.lent) == (2 if stays else 0), "nothing was lent anew"
    lost.path.unlink()  # it comes back, unlike a real one
    (output,) = ask(stub, "0", stays=stays).responses[0].outputs
    assert output.region == (4 if stays else 2)
    stub.give_back(output.ticket)
    ends(stub)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("sole", [True, False])
def test_where_it_has_borrowed(begin: Begin, lost: Lost, maker: Maker, code: str, sole: bool) -> None:
    """Reading its tensors is an error, and they are returned; allocations are forgotten."""
    stub = begin(KEEPS)
    stub.announce(1, maker.lent)
    stub.announce(2, maker.lent)
    for number, how in ((1, ""), (1, "leave"), (2, "leave")):  # seen, unseen, unseen in an unopened allocation
        assert stub.execute(Request(1, [maker.input(number, sole=sole)], id=how)).text == ""
    lost.say(code)
    for number in (1, 2):
        executed = stub.execute(Request(2, [maker.input(number, sole=sole)], id="drop"))
        assert "failed to copy data" in executed.text or CANNOT_OPEN in executed.text, executed.text
    (response,) = stub.execute(Request(3, [("IN", SOME)], id="leave")).responses  # reads none
    assert response["OUT"].shape == (0,)
    stub.execute(Request(4, id="clear"))
    stub.send("FREED", 1)
    stub.send("FREED", 2)
    for _ in range(2):
        stub.execute(Request(9))
    assert stub.loans == {}, "tickets did not come back"
    ends(stub)


#: Resets the context of a device, and lets a library retain it again, depending on the request's
#: id.
RESETS = """
import ctypes

driver = ctypes.CDLL("libcuda.so.1")

def reset(said):
    if "reset" in said:
        driver.cuDevicePrimaryCtxReset_v2(0)
    if "anew" in said:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
"""


@pytest.mark.parametrize("how", ["reset", "reset anew"])
def test_a_context_that_the_model_resets(begin: Begin, tmp_path: Path, how: str) -> None:
    """The pool is lost with it. Another one is made, and the old one is withdrawn."""
    stub = begin(
        RESETS
        + """
class TritonPythonModel:
    def execute(self, requests):
        if requests[0].request_id():
            reset(requests[0].request_id())
            return [InferenceResponse([Tensor("OUT", np.zeros(1, np.float32))])]
        return [InferenceResponse([on_device(requests[0].inputs()[0].as_numpy() * 2)])]
"""
    )
    (first,) = ask(stub, "").responses[0].outputs
    stub.give_back(first.ticket)
    ask(stub, how)
    regions = []
    for _ in range(3):
        executed = ask(stub, "")
        for output in (o for r in executed.responses for o in r.outputs):
            regions.append((output.region, output.number))
            stub.give_back(output.ticket)
    assert regions[-1] == (4, 2), regions
    if how == "reset anew":
        assert len(regions) == 3 and regions[0] == (4, 2), f"it was not noticed before a copy failed: {regions}"
    late = time.monotonic() + 30
    while stub.unlent != [1]:  # after a second
        assert time.monotonic() < late, "the old pool was not taken back"
        for output in ask(stub, "").responses[0].outputs:
            stub.give_back(output.ticket)
    counts = State(tmp_path / "counts").counts
    assert counts["cuMemcpyDtoD_v2"] >= 3 and counts["cuMemFree_v2"] == counts["cuMemAlloc_v2"] - 2, "others own that address"
    ends(stub)


@pytest.mark.parametrize("how", ["reset", "reset anew"])
def test_allocations_are_reopened_after_a_context_reset(begin: Begin, maker: Maker, how: str) -> None:
    """It is opened again."""
    stub = begin(RESETS + KEEPS.replace("responses = []", "responses = []\n        reset(requests[0].request_id())"))
    stub.announce(1, maker.lent)
    for said in ("drop", how, "drop", "drop"):
        executed = stub.execute(Request(1, [maker.input()], id=said))
        if said == how and executed.text:  # from the lost context, once
            assert CANNOT_OPEN in executed.text and how == "reset", executed.text
            continue
        assert (executed.responses[0]["OUT"] == maker.array).all()
        stub.execute(Request(4, id="clear"))
    assert stub.loans == {}
    ends(stub)


def test_a_handle_of_its_own_does_not_cost_the_context(begin: Begin, maker: Maker) -> None:
    """A process cannot open its own allocation: the error equals that of a destroyed context."""
    stub = begin(KEEPS.replace('Tensor("OUT", seen)', "on_device(np.zeros(9, np.float32))"))
    (output,) = stub.execute(Request(1, stays=[])).responses[0].outputs
    own = stub.lent[output.number]
    stub.announce(1, own)
    stub.give_back(output.ticket)
    for _ in range(3):
        assert CANNOT_OPEN in stub.execute(Request(1, [maker.input()], id="drop")).text
        (output,) = stub.execute(Request(2, stays=[])).responses[0].outputs
        assert (output.region, output.number) == (4, 1), "its pool was given up"
        stub.give_back(output.ticket)
    ends(stub)


def test_memory_of_the_dead_does_not_cost_the_context(begin: Begin, maker: Maker) -> None:
    """Opening memory of an ended process fails with the error for a destroyed context."""
    answer = "on_device(np.zeros(1100 * len(r.request_id()) + 9, np.float32))"
    stub = begin(KEEPS.replace('Tensor("OUT", seen)', answer))
    maker.process.communicate()
    stub.announce(1, maker.lent)
    for turn in range(3):
        assert CANNOT_OPEN in stub.execute(Request(1, [maker.input()], id="drop")).text
        (output,) = stub.execute(Request(2, id="x" * turn, stays=[])).responses[0].outputs
        assert (output.region, output.number) == (4, 1)
        stub.give_back(output.ticket)
