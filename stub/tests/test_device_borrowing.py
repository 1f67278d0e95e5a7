"""Device memory that a stub borrows, in real stubs with the fake driver."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Begin, Counts
from devicemodels import CANNOT_OPEN, KEEPS, SOME, Maker, may_stay
from frames import InDevice, Lent, Request
from supervisor import Supervisor


class TestBorrowing:
    def settled(self, stub: Supervisor) -> None:
        """Make the stub return its tickets, with the answers if not before."""
        for _ in range(2):
            stub.execute(Request(9))
        assert stub.loans == {}, "tickets did not come back"

    @pytest.mark.parametrize("sole", [True, False])
    def test_a_tensor_is_seen(self, begin: Begin, maker: Maker, counts: Counts, sole: bool) -> None:
        stub = begin(KEEPS)
        stub.announce(1, maker.lent)
        for _ in range(3):
            executed = stub.execute(Request(1, [maker.input(sole=sole)], id="drop"))
            assert executed.text == "" and (executed.responses[0]["OUT"] == maker.array).all()
        self.settled(stub)
        state = counts()
        assert state.counts["cuIpcOpenMemHandle_v2"] == 1 == state.live("opened"), "it is opened once"
        assert state.counts["cuMemcpyDtoD_v2"] == (0 if sole else 3)
        stub.send("FREED", 1)
        self.settled(stub)
        assert counts().live("opened") == 0

    def test_a_sole_one_is_held_and_a_shared_one_is_not(self, begin: Begin, maker: Maker) -> None:
        stub = begin(KEEPS)
        stub.announce(1, maker.lent)
        stub.execute(Request(1, [maker.input(sole=False)]))
        self.settled(stub)  # it was copied, and the model still has it
        stub.execute(Request(2, [maker.input(sole=True)]))
        assert len(stub.loans) == 1
        stub.execute(Request(3, id="clear"))
        self.settled(stub)

    def test_one_that_is_not_looked_at_loads_no_driver(self, begin: Begin, maker: Maker, counts: Counts) -> None:
        stub = begin(KEEPS)
        before = counts().counts
        stub.announce(1, maker.lent)
        assert stub.execute(Request(1, [maker.input(sole=False)], id="leave")).text == ""
        assert len(stub.loans) == 1
        stub.execute(Request(2, id="clear"))
        self.settled(stub)
        assert counts().counts == before

    def test_one_that_is_smaller_than_was_said(self, begin: Begin, maker: Maker, counts: Counts) -> None:
        stub = begin(KEEPS)
        lent = maker.lent
        stub.announce(1, Lent(lent.device, lent.size * 4, lent.uuid, lent.handle))
        executed = stub.execute(Request(1, [maker.input()]))
        (response,) = executed.responses or (None,)
        said = executed.text or (response is not None and str(response.error)) or ""
        assert f"{CANNOT_OPEN}the allocation has less than the {lent.size * 4} bytes" in said, said
        stub.execute(Request(2, id="clear"))
        self.settled(stub)
        assert counts().live("opened") == 0

    def test_freed_while_it_is_held(self, begin: Begin, maker: Maker, counts: Counts) -> None:
        stub = begin(KEEPS)
        stub.announce(1, maker.lent)
        stub.execute(Request(1, [maker.input()]))
        stub.send("FREED", 1)
        assert stub.execute(Request(2, [maker.input()])).status == 1, "it is not known any more"
        assert counts().live("opened") == 1
        stub.execute(Request(3, id="clear"))
        stub.execute(Request(4))
        assert counts().live("opened") == 0

    def test_its_own_comes_back(self, begin: Begin, counts: Counts) -> None:
        stub = begin(
            """
class TritonPythonModel:
    def execute(self, requests):
        (x,) = requests[0].inputs()
        if x.is_cpu():
            return [InferenceResponse([on_device(x.as_numpy())])]
        return [InferenceResponse([Tensor("OUT", values(x))])]
"""
        )
        (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
        own = InDevice(output.number, int.from_bytes(output.data, "little"), (5000,), 20_000, own=True)
        assert (stub.execute(Request(2, [("IN", own)])).responses[0]["OUT"] == SOME).all()
        stub.give_back(output.ticket)
        self.settled(stub)
        assert counts().counts["cuIpcOpenMemHandle_v2"] == 0

    @pytest.mark.parametrize(
        "change", [{"number": 2}, {"offset": 4}, {"offset": 1 << 63}, {"own": True}, {"number": 0}]
    )
    def test_invalid_descriptor_fails_the_batch(self, begin: Begin, maker: Maker, change: dict[str, Any]) -> None:
        stub = begin(KEEPS)
        stub.announce(1, maker.lent)
        stub.execute(Request(1, [maker.input()], id="drop"))
        executed = stub.execute(Request(1, [maker.input(), maker.input(**change)]))
        assert executed.status == 1 and "is not understood" in executed.text
        assert (stub.execute(Request(1, [maker.input()], id="drop")).responses[0]["OUT"] == maker.array).all()
        self.settled(stub)  # that of the fault too

    def test_an_allocation_is_announced_once(self, begin: Begin, maker: Maker) -> None:
        stub = begin(KEEPS)
        for _ in range(2):
            stub.announce(1, maker.lent)
        stub.send("ALLOCATION", 2, b"short")
        stub.send("FREED", 7)
        stub.execute(Request(1, [maker.input()], id="drop"))
        self.settled(stub)
        assert sum("is not understood" in log["message"] for log in stub.logs) == 2

    @pytest.mark.parametrize("sole", [True, False])
    @pytest.mark.parametrize(
        "function",
        [
            "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxRetain",
            "cuCtxPushCurrent_v2", "cuIpcOpenMemHandle_v2", "cuMemcpyDtoH_v2", "cuCtxSynchronize", "cuMemAlloc_v2",
            "cuIpcGetMemHandle", "cuMemcpyDtoD_v2", "cuStreamSynchronize", "cuIpcCloseMemHandle",
        ],
    )  # fmt: skip
    def test_a_call_that_fails_is_an_error_of_its_request(
        self, begin: Begin, maker: Maker, counts: Counts, function: str, sole: bool
    ) -> None:
        stub = begin(KEEPS, fail=f"{function}:1=999")
        stub.announce(1, maker.lent)
        executed = stub.execute(Request(1, [maker.input(sole=sole)], id="drop"))
        if executed.text:
            assert "unknown error" in executed.text or "999" in executed.text, executed.text
        else:
            assert (executed.responses[0]["OUT"] == maker.array).all()
        if function == "cuIpcOpenMemHandle_v2":
            assert CANNOT_OPEN in executed.text
        for _ in range(3):
            executed = stub.execute(Request(1, [maker.input(sole=sole)], id="drop"))
            if function == "cuInit":
                break  # a driver that fails in this way is not called again
            assert executed.text == "" and (executed.responses[0]["OUT"] == maker.array).all()
        self.settled(stub)
        stub.send("FREED", 1)
        self.settled(stub)
        assert counts().live("opened") == (1 if function == "cuIpcCloseMemHandle" else 0)

    def test_a_maker_that_has_gone(self, begin: Begin, maker: Maker, counts: Counts) -> None:
        stub = begin(KEEPS)
        gone = Lent(0, maker.lent.size, maker.lent.uuid, bytes(64))
        other = Lent(0, maker.lent.size, bytes(range(16)), maker.lent.handle)
        for number, lent in enumerate((gone, other, maker.lent), 1):
            stub.announce(number, lent)
        for number in (1, 2):
            for sole in (True, False):
                assert CANNOT_OPEN in stub.execute(Request(1, [maker.input(number, sole=sole)], id="drop")).text
        assert (stub.execute(Request(1, [maker.input(3)], id="drop")).responses[0]["OUT"] == maker.array).all()
        self.settled(stub)
        assert counts().live("opened") == 1

    def test_many_threads_look(self, begin: Begin, maker: Maker, counts: Counts) -> None:
        stub = begin(
            """
import threading

class TritonPythonModel:
    def execute(self, requests):
        seen = []
        def look(x):
            seen.append(values(x).sum())
        threads = [threading.Thread(target=look, args=(x,)) for x in requests[0].inputs() for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [InferenceResponse([Tensor("OUT", np.array(seen))])]
"""
        )
        stub.announce(1, maker.lent)
        for _ in range(5):
            inputs = [maker.input(sole=False) for _ in range(4)]
            (response,) = stub.execute(Request(1, inputs)).responses
            assert response["OUT"].shape == (16,) and len(set(response["OUT"])) == 1
        self.settled(stub)
        state = counts()
        assert state.counts["cuMemcpyDtoD_v2"] == 20 and state.counts["cuIpcOpenMemHandle_v2"] == 1

    def test_a_fork_leaves_tickets_and_allocations_alone(self, begin: Begin, maker: Maker, counts: Counts) -> None:
        stub = begin(
            """
import gc, os

class TritonPythonModel:
    def execute(self, requests):
        (x,) = requests[0].inputs()
        seen = values(x)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                values(x)
            except pb_utils.TritonModelException as error:
                code = 0 if "forked" in str(error) else 2
            del x
            requests.clear()
            gc.collect()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        return [InferenceResponse([Tensor("OUT", seen), Tensor("STATUS", np.array([status]))])]
""",
            outputs=["OUT", "STATUS"],
        )
        stub.announce(1, maker.lent)
        (response,) = stub.execute(Request(1, [maker.input()])).responses
        assert (response["OUT"] == maker.array).all() and response["STATUS"][0] == 0
        self.settled(stub)
        assert counts().live("opened") == 1

    def test_the_end_with_tensors_held(self, begin: Begin, maker: Maker) -> None:
        stub = begin(
            KEEPS
            + """
held = []
class TritonPythonModel(TritonPythonModel):
    def execute(self, requests):
        held.extend(x for r in requests for x in r.inputs())
        held.append(on_device(np.arange(3000)))
        return super().execute(requests)
"""
        )
        stub.announce(1, maker.lent)
        stub.execute(Request(1, [maker.input()]))
        stub.execute(Request(2, [maker.input(sole=False)]))
        assert stub.finalize()["error"] == ""
        assert stub.wait_exit() == 0
        assert "Traceback" not in stub.stderr() and "Exception" not in stub.stderr()
