"""Device memory that a stub lends, in real stubs with the fake driver."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from conftest import Begin, Counts
from devicemodels import SOME, may_stay
from frames import Request

#: Answers with the input, doubled, on a device.
DOUBLES = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            InferenceResponse([on_device(r.inputs()[0].as_numpy() * 2, number % 2)])
            for number, r in enumerate(requests)
        ]
"""


class TestLending:
    def test_where_it_may_an_output_stays(self, begin: Begin, counts: Counts) -> None:
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

    def test_returned_memory_is_reused(self, begin: Begin, counts: Counts) -> None:
        stub = begin(DOUBLES)
        places = set()
        for _ in range(10):
            (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
            places.add((output.number, output.data))
            stub.give_back(output.ticket)
        assert len(places) == 1 and list(stub.lent) == [1] and counts().live("allocation") == 1
        kept = [stub.execute(*may_stay(SOME)).responses[0].outputs[0] for _ in range(3)]
        assert len({(o.number, o.data) for o in kept}) == 3, "bytes that are out were used again"

    def test_memory_that_is_not_used_is_freed(self, begin: Begin, counts: Counts) -> None:
        stub = begin(DOUBLES)
        large = np.zeros(9 << 20, np.float32)  # 36 MiB, so each has an allocation
        outputs = [response.outputs[0] for response in stub.execute(*may_stay(*[large] * 5)).responses]
        on = {0: 3, 1: 2}
        assert [sum(lent.device == d for lent in stub.lent.values()) for d in on] == list(on.values())
        for output in outputs:
            stub.give_back(output.ticket)
        late = time.monotonic() + 30
        # On the first device, used memory stays, and 40 MiB more are too much; on the second, 40
        # MiB are kept.
        while len(stub.unlent) < 4:  # it checks before it sleeps
            assert time.monotonic() < late, "nothing was freed"
            (output,) = stub.execute(*may_stay(SOME)).responses[0].outputs
            stub.give_back(output.ticket)
        assert stub.execute(*may_stay(SOME)).responses[0].outputs[0].number not in stub.unlent
        assert [stub.lent[number].device for number in sorted(stub.lent) if number not in stub.unlent] in ([0, 1], [1, 0])
        assert counts().live("allocation") == len(stub.lent) - len(stub.unlent)

    def test_the_end_waits_for_lent_memory(self, begin: Begin) -> None:
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
        stub = begin("from pb_stub import devicepool\n\ndevicepool.LINGER_SECONDS = 0.01\n" + DOUBLES)
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
        # The model's own memory counts: with 40 MiB the pool gets none.
        for output in first, second:
            assert output.region == 2 and output.data == (large * 2).tobytes()
            stub.give_back(output.ticket)
        (small,) = stub.execute(*may_stay(SOME)).responses[0].outputs
        assert small.region == 4

    def test_too_many_allocations_go_by_the_host(self, begin: Begin) -> None:
        stub = begin(
            """
from pb_stub import devicepool

devicepool.MOST_LENT = 2
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
    def test_unlendable_output_is_copied_through_the_host(self, begin: Begin, counts: Counts, function: str, code: int) -> None:
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

    def test_by_many_threads(self, begin: Begin, counts: Counts) -> None:
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
        """A sending thread's destructor makes an allocation that another thread's frame names."""
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
        second._outlet._senders.channel._send = None  # only Python can be interrupted between two steps
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

        def other():
            second.send(InferenceResponse([on_device(np.ones(2000, np.float32))]), final)
            sent.set()

        def interrupted(channel, frame):
            write(channel, frame)
            if next(steps, "") == "destructor":
                # As its own send would do, except for the frame, which follows later.
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
