"""Memory of devices that a stub lends to others, and borrows of them, in real stubs with the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import fakecuda
import numpy as np
import pytest
from conftest import Start
from fakecuda import State
from supervisor import InDevice, Lent, Request, Supervisor

HERE = Path(__file__).resolve().parent

HEAD = f"""
import sys
sys.path.append({str(HERE)!r})
import numpy as np
import triton_python_backend_utils as pb_utils
from c_python_backend_utils import InferenceResponse, Tensor
from producer import OnDevice

def on_device(array, device=0, name="OUT"):
    return Tensor.from_dlpack(name, OnDevice(array, device))

def values(tensor):
    return np.frombuffer(tensor._data.read(), np.float32)
"""

#: Answers with the input, doubled, on a device.
DOUBLES = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            InferenceResponse([on_device(r.inputs()[0].as_numpy() * 2, number % 2)])
            for number, r in enumerate(requests)
        ]
"""

#: Keeps its inputs until "clear", and looks at them, as the request's id says.
KEEPS = """
class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        responses = []
        for r in requests:
            seen = np.zeros(0, np.float32)
            if r.request_id() == "clear":
                self.kept.clear()
            for x in r.inputs():
                if r.request_id() != "leave":
                    seen = values(x)
                if r.request_id() != "drop":
                    self.kept.append(x)
            responses.append(InferenceResponse([Tensor("OUT", seen)]))
        x = r = None
        return responses
"""

MISTAKES = (
    "double_free", "double_close", "freed_while_open", "wrong_context", "without_context", "out_of_bounds", "after_fork",
)  # fmt: skip

Begin = Callable[..., Supervisor]


@pytest.fixture
def counts(tmp_path: Path) -> Callable[[], State]:
    return lambda: State(tmp_path / "counts")


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Iterator[Begin]:
    """Starts a stub whose environment has the fake: `begin(source, fail=..., **settings)`."""

    def begin(source: str, fail: str = "", memory: int = 1 << 30, **settings: Any) -> Supervisor:
        environment = fakecuda.environment(tmp_path / "counts", fail=fail, memory=memory)
        return start(HEAD + source, environment=environment, **settings)

    yield begin
    state = State(tmp_path / "counts")
    assert {name: state.counts.get(name, 0) for name in MISTAKES} == dict.fromkeys(MISTAKES, 0)


def may_stay(*arrays: np.ndarray) -> list[Request]:
    return [Request(number + 1, [("IN", array)], stays=[]) for number, array in enumerate(arrays)]


SOME = np.arange(5000, dtype=np.float32)


class TestLending:
    def test_where_it_may_an_output_stays(self, begin: Begin, counts: Callable[[], State]) -> None:
        stub = begin(DOUBLES)
        executed = stub.execute(*may_stay(SOME, SOME, SOME))
        outputs = [response.outputs[0] for response in executed.responses]
        assert [(o.region, o.type, o.shape, o.element) for o in outputs] == [(4, 11, (5000,), 0)] * 3
        assert len({o.ticket for o in outputs}) == 3
        assert {number: lent.device for number, lent in stub.lent.items()} == {1: 0, 2: 1}
        assert [o.number for o in outputs] == [1, 2, 1] and outputs[0].data != outputs[2].data
        assert all(lent.size == 32 << 20 and any(lent.handle) and any(lent.uuid) for lent in stub.lent.values())
        state = counts()
        assert state.counts["bytes_to_host"] == 0 and state.counts["cuMemcpyDtoD_v2"] == 3
        assert state.live("allocation") == 2, "the tensors of the model have gone"

    @pytest.mark.parametrize("stays", [None, ["OTHER"]])
    def test_where_it_may_not_it_does_not(self, begin: Begin, stays: Any) -> None:
        stub = begin(DOUBLES, outputs=["OUT", "OTHER"])
        (response,) = stub.execute(Request(1, [("IN", SOME)], stays=stays)).responses
        assert response.outputs[0].region == 2 and response.outputs[0].data == (SOME * 2).tobytes()
        assert stub.lent == {}

    def test_what_comes_back_is_used_again(self, begin: Begin, counts: Callable[[], State]) -> None:
        stub = begin(DOUBLES)
        places = set()
        for _ in range(10):
            (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
            places.add((output.number, output.data))
            stub.give_back(output.ticket)
        assert len(places) == 1 and list(stub.lent) == [1] and counts().live("allocation") == 1
        kept = [stub.execute(*may_stay(SOME)).responses[0].outputs[0] for _ in range(3)]
        assert len({(o.number, o.data) for o in kept}) == 3, "bytes that are out were used again"

    def test_memory_that_is_not_used_is_freed(self, begin: Begin, counts: Callable[[], State]) -> None:
        stub = begin(DOUBLES)
        large = np.zeros(9 << 20, np.float32)  # 36 MiB, so each has an allocation
        outputs = [response.outputs[0] for response in stub.execute(*may_stay(*[large] * 5)).responses]
        on = {0: 3, 1: 2}
        assert [sum(lent.device == d for lent in stub.lent.values()) for d in on] == list(on.values())
        for output in outputs:
            stub.give_back(output.ticket)
        late = time.monotonic() + 30
        # On the first device what is used goes on, and 40 MiB beside it are too many; on the second 40 MiB are kept.
        while len(stub.unlent) < 4:  # it looks before it sleeps
            assert time.monotonic() < late, "nothing was freed"
            (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
            stub.give_back(output.ticket)
        assert stub.execute(*may_stay(SOME)).responses[0].outputs[0].number not in stub.unlent
        assert [stub.lent[number].device for number in sorted(stub.lent) if number not in stub.unlent] in ([0, 1], [1, 0])
        assert counts().live("allocation") == len(stub.lent) - len(stub.unlent)

    def test_its_end_waits_for_what_is_out(self, begin: Begin) -> None:
        stub = begin(DOUBLES)
        outputs = [response.outputs[0] for response in stub.execute(*may_stay(SOME, SOME)).responses]
        answers: list[Any] = []
        ending = threading.Thread(target=lambda: answers.append(stub.finalize()))
        ending.start()
        late = time.monotonic() + 30
        while not stub.logs:
            assert time.monotonic() < late, "it does not say that it waits"
            time.sleep(0.01)
        assert stub.logs[0]["message"] == "waiting for 2 tensors on devices that other models hold"
        for output in outputs:
            assert not answers
            stub.give_back(output.ticket)
        ending.join()
        assert answers == [{"error": ""}]

    def test_its_end_does_not_wait_for_ever(self, begin: Begin) -> None:
        stub = begin("from pb_stub import ondevice\n\nondevice.LINGER_SECONDS = 0.01\n" + DOUBLES)
        stub.execute(*may_stay(SOME))
        assert stub.finalize() == {"error": ""} and len(stub.logs) == 1

    def test_requests_that_are_given_up_leave_nothing(self, begin: Begin) -> None:
        stub = begin(
            """
import asyncio, gc

class TritonPythonModel:
    async def execute(self, requests):
        some = np.arange(5, dtype=np.float32)

        def ask(*more):
            given = [on_device(some, name="IN"), *more]
            return pb_utils.InferenceRequest(model_name="m", inputs=given, requested_output_names=["OUT"])

        future = ask().async_exec()
        await asyncio.sleep(0)
        future.cancel()
        freed = OnDevice(some)
        lost = ask(Tensor.from_dlpack("LOST", freed))
        freed.free()
        assert "failed to copy data" in lost.exec().error().message()
        (inferences,) = [o for o in gc.get_objects() if type(o).__name__ == "Inferences"]
        return [InferenceResponse([Tensor("OUT", np.array([len(inferences._asked)]))])]
"""
        )
        stub.start_batch(Request(1, [("IN", SOME)]))
        asked = stub.receive()
        assert asked.kind == "INFER" and list(stub.lent) == [1]
        assert stub.receive().kind == "STOP_INFER"
        executed = stub.finish_batch()
        assert executed.text == ""
        assert executed.responses[0]["OUT"] == 0

    def test_out_of_memory_goes_by_the_host(self, begin: Begin) -> None:
        stub = begin(DOUBLES, memory=40 << 20)
        large = np.arange(5 << 20, dtype=np.float32)  # 20 MiB: one block fits into 32 MiB, no second allocation
        first, second = (stub.execute(*may_stay(large)).responses[0].outputs[0] for _ in range(2))
        # What the model has made takes its part: with 40 MiB there is none for the pool.
        for output in first, second:
            assert output.region == 2 and output.data == (large * 2).tobytes()
            stub.give_back(output.ticket)
        (small,) = stub.execute(*may_stay(SOME)).responses[0].outputs
        assert small.region == 4

    def test_too_many_allocations_go_by_the_host(self, begin: Begin) -> None:
        stub = begin(
            """
from pb_stub import ondevice

ondevice.MOST_LENT = 2
"""
            + DOUBLES
        )
        large = np.arange(9 << 20, dtype=np.float32)
        got = []
        for _ in range(4):
            (output,) = stub.execute(*may_stay(large)).responses[0].outputs
            got.append((output.region, output.number))
            if output.region == 2:
                assert output.data == (large * 2).tobytes()
                stub.give_back(output.ticket)
            else:
                ticket = output.ticket
        assert got == [(4, 1), (4, 2), (2, 0), (2, 0)]
        stub.give_back(ticket)
        assert stub.execute(*may_stay(large)).responses[0].outputs[0].region == 4

    @pytest.mark.parametrize(
        "function", ["cuMemAlloc_v2:2", "cuIpcGetMemHandle:1", "cuMemcpyDtoD_v2:1", "cuDeviceGetUuid_v2:1"]
    )
    @pytest.mark.parametrize("code", [1, 2, 801])
    def test_what_cannot_be_lent_goes_by_the_host(
        self, begin: Begin, counts: Callable[[], State], function: str, code: int
    ) -> None:
        stub = begin(DOUBLES, fail=f"{function}={code}")
        (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
        if (function, code) == ("cuMemAlloc_v2:2", 2):
            assert output.region == 4, "it is tried again when unused memory has been freed"
        else:
            assert output.region == 2 and output.data == (SOME * 2).tobytes()
        stub.give_back(output.ticket)
        for _ in range(3):
            (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
            assert output.region == 4
            stub.give_back(output.ticket)
        assert counts().live("allocation") == 1

    def test_by_many_threads(self, begin: Begin, counts: Callable[[], State]) -> None:
        stub = begin(
            """
import threading

class TritonPythonModel:
    def execute(self, requests):
        def answer(request, number):
            sender = request.get_response_sender()
            for turn in range(4):
                size = 1100 * (1 + (number + turn) % 5)
                sender.send(InferenceResponse([on_device(np.full(size, number, np.float32), number % 2)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        threads = [threading.Thread(target=answer, args=one) for one in zip(requests, range(len(requests)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
""",
            decoupled=True,
        )
        for _ in range(5):
            stub.responses.clear()
            stub.execute(*may_stay(*[SOME[:4]] * 6))
            outputs = [output for response in stub.responses for output in response.outputs]
            assert len(outputs) == 24 and {output.region for output in outputs} == {4}
            ranges = sorted((o.number, int.from_bytes(o.data, "little"), o.shape[0] * 4) for o in outputs)
            for (number, at, size), (other, begins, _) in zip(ranges, ranges[1:]):
                assert number != other or at + size <= begins, "two tensors that are out overlap"
            for output in outputs:
                stub.give_back(output.ticket)
        assert counts().live("allocation") == len(stub.lent) - len(stub.unlent)

    def test_lend_of_a_destructor_goes_before_descriptors_of_others(self, begin: Begin) -> None:
        """A thread sends, a destructor in it makes an allocation, and another thread's descriptor names that."""
        stub = begin(
            """
import threading
from pb_stub.channel import Channel

write, publish_deferred = Channel._write, Channel._publish_deferred
steps = iter(["destructor"])
sent = threading.Event()
others = []

class TritonPythonModel:
    def execute(self, requests):
        first, second = (r.get_response_sender() for r in requests)
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

        def other():
            second.send(InferenceResponse([on_device(np.ones(2000, np.float32))]), final)
            sent.set()

        def interrupted(channel, frame):
            write(channel, frame)
            if next(steps, "") == "destructor":
                # As its own send would, but for the frame, which follows later.
                data = on_device(np.zeros(3000, np.float32))._data
                others.append(self.loop_pool(second).elsewhere().pool.copy(data))
                thread = threading.Thread(target=other)
                thread.start()
                while thread.ident not in channel._senders:
                    pass

        def late(channel):
            sent.wait(10)
            publish_deferred(channel)

        Channel._write, Channel._publish_deferred = interrupted, late
        first.send(InferenceResponse([Tensor("OUT", np.zeros(1, np.float32))]), final)
        sent.wait(10)
        Channel._write, Channel._publish_deferred = write, publish_deferred

    def loop_pool(self, sender):
        return sender._outlet._senders.answers()._pool
""",
            decoupled=True,
        )
        stub.start_batch(*may_stay(SOME[:4], SOME[:4]))
        seen = 0
        while seen < 2:
            frame = stub.receive()
            if frame.kind == "RESPONSE":
                seen += 1
                for output in stub.response(frame).outputs:
                    assert output.region == 0 or output.number in stub.lent, "a descriptor names what was not announced"
        assert list(stub.lent) == [1]


#: A process that makes an allocation on the first device, tells of it, and ends with its input.
MAKES = """
import sys
sys.path[:0] = sys.argv[1:]
import numpy as np
from c_python_backend_utils import cuda
from producer import OnDevice

made = OnDevice(np.arange(5000, dtype=np.float32))
device = cuda.device(0)
print(device.uuid().hex(), device.handle_of(made.address).hex(), flush=True)
sys.stdin.read()
"""


class Maker:
    """Another process, which has lent the values 0, 1, …"""

    def __init__(self, state: Path) -> None:
        self.array = np.arange(5000, dtype=np.float32)
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAKES, str(HERE), str(HERE.parents[1] / "pyutils")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **fakecuda.environment(state)},
        )  # fmt: skip
        assert self.process.stdout is not None
        uuid, handle = map(bytes.fromhex, self.process.stdout.readline().split())
        self.lent = Lent(0, self.array.nbytes, uuid, handle)

    def input(self, number: int = 1, offset: int = 0, **how: Any) -> tuple[str, InDevice]:
        return "IN", InDevice(number, offset, self.array.shape, self.array.nbytes, **how)


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[Maker]:
    made = Maker(tmp_path / "counts")
    yield made
    made.process.communicate()


CANNOT_OPEN = "Failed to open the cudaIpcHandle. error: "


class TestBorrowing:
    def settled(self, stub: Supervisor) -> None:
        """Have the stub say what it has to say of tickets, with answers if it has not said it before."""
        for _ in range(2):
            stub.execute(Request(9))
        assert stub.loans == {}, "tickets did not come back"

    @pytest.mark.parametrize("sole", [True, False])
    def test_a_tensor_is_seen(self, begin: Begin, maker: Maker, counts: Callable[[], State], sole: bool) -> None:
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

    def test_one_that_is_not_looked_at_loads_no_driver(
        self, begin: Begin, maker: Maker, counts: Callable[[], State]
    ) -> None:
        stub = begin(KEEPS)
        before = counts().counts
        stub.announce(1, maker.lent)
        assert stub.execute(Request(1, [maker.input(sole=False)], id="leave")).text == ""
        assert len(stub.loans) == 1
        stub.execute(Request(2, id="clear"))
        self.settled(stub)
        assert counts().counts == before

    def test_one_that_is_smaller_than_was_said(
        self, begin: Begin, maker: Maker, counts: Callable[[], State]
    ) -> None:
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

    def test_freed_while_it_is_held(self, begin: Begin, maker: Maker, counts: Callable[[], State]) -> None:
        stub = begin(KEEPS)
        stub.announce(1, maker.lent)
        stub.execute(Request(1, [maker.input()]))
        stub.send("FREED", 1)
        assert stub.execute(Request(2, [maker.input()])).status == 1, "it is not known any more"
        assert counts().live("opened") == 1
        stub.execute(Request(3, id="clear"))
        stub.execute(Request(4))
        assert counts().live("opened") == 0

    def test_its_own_comes_back(self, begin: Begin, counts: Callable[[], State]) -> None:
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
    def test_what_is_not_understood(self, begin: Begin, maker: Maker, change: dict[str, Any]) -> None:
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
        self, begin: Begin, maker: Maker, counts: Callable[[], State], function: str, sole: bool
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
                break  # a driver that fails so is asked no more
            assert executed.text == "" and (executed.responses[0]["OUT"] == maker.array).all()
        self.settled(stub)
        stub.send("FREED", 1)
        self.settled(stub)
        assert counts().live("opened") == (1 if function == "cuIpcCloseMemHandle" else 0)

    def test_a_maker_that_has_gone(self, begin: Begin, maker: Maker, counts: Callable[[], State]) -> None:
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

    def test_many_threads_look(self, begin: Begin, maker: Maker, counts: Callable[[], State]) -> None:
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

    def test_a_fork_leaves_tickets_and_allocations_alone(
        self, begin: Begin, maker: Maker, counts: Callable[[], State]
    ) -> None:
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
