"""Outputs on a CUDA device, of a real stub with the fake driver: destinations and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakecuda
import numpy as np
import pytest
from conftest import Begin, Counts, Start
from frames import Request
from supervisor import Supervisor
from test_regions import Client

HERE = str(Path(__file__).resolve().parent)

HEAD = f"""
import sys
sys.path.append({HERE!r})
import numpy as np
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import InferenceResponse, Tensor
from c_python_backend_utils import shared_memory
from producer import OnDevice

def on_device(array, device=0, **how):
    return Tensor.from_dlpack("OUT", OnDevice(array, device, **how))

"""

NOT_COPIED = (
    "Failed to process the request(s) for model 'm_0_0', message: An error occurred while trying to load GPU buffers in "
    "the Python backend stub: failed to copy data: "
)


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Begin:
    """Starts a stub whose environment has the fake: `begin(source, fail=..., **settings)`."""

    def begin(source: str, fail: str = "", **settings: Any) -> Supervisor:
        environment = fakecuda.environment(tmp_path / "counts", fail=fail)
        return start(HEAD + source, environment=environment, **settings)

    return begin


DOUBLES = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            InferenceResponse([on_device(r.inputs()[0].as_numpy() * 2, number % 2)])
            for number, r in enumerate(requests)
        ]
"""


AS_NUMPY = """
class TritonPythonModel:
    def execute(self, requests):
        tensors = [on_device(r.inputs()[0].as_numpy()) for r in requests]
        return [InferenceResponse([Tensor("OUT", t.as_numpy() * 2)]) for t in tensors]
"""


@pytest.mark.parametrize("changes", [{}, {"no_device_copy": False}])
def test_as_numpy_copies_to_the_host(begin: Begin, counts: Counts, changes: dict[str, bool]) -> None:
    stub = begin(AS_NUMPY, **changes)
    (response,) = stub.execute(*requests(np.arange(5, dtype=np.float32))).responses
    assert response["OUT"].tolist() == [0, 2, 4, 6, 8]
    assert counts().counts["cuMemcpyDtoH_v2"] == 1


def test_as_numpy_raises_if_the_model_wants_it(begin: Begin) -> None:
    executed = begin(AS_NUMPY, no_device_copy=True).execute(*requests(np.arange(5, dtype=np.float32)))
    assert "Tensor is stored in GPU and cannot be converted to NumPy." in executed.text


def requests(*arrays: np.ndarray) -> list[Request]:
    return [Request(number + 1, [("IN", array)]) for number, array in enumerate(arrays)]


@pytest.mark.parametrize("size", [1, 1024, 1025, 1 << 18, 3 << 20])
def test_each_output_is_copied_once(begin: Begin, counts: Counts, size: int) -> None:
    stub = begin(DOUBLES)
    array = np.arange(size, dtype=np.float32)
    for turn in (1, 2, 3):
        executed = stub.execute(*requests(array, array + 1))
        assert executed.text == ""
        for number, response in enumerate(executed.responses):
            (output,) = response.outputs
            assert output.region == (0 if size <= 1024 else 2) and output.shape == (size,)
            assert output.data == ((array + number) * 2).tobytes()
            if output.ticket:
                stub.give_back(output.ticket)
        state = counts()
        assert state.counts["cuMemcpyDtoH_v2"] == 2 * turn
        assert state.counts["bytes_to_host"] == 8 * size * turn
        assert state.counts["bytes_on_device"] == state.counts["bytes_between_devices"] == 0
        assert state.live("allocation") == 0, "the tensors of a batch have gone when it is answered"
    assert state.live("context") == state.live("stream") == 2
    for mistake in ("double_free", "wrong_context", "without_context", "out_of_bounds", "after_fork"):
        assert state.counts[mistake] == 0, mistake


def test_kinds_of_tensors(begin: Begin) -> None:
    stub = begin(
        """
class TritonPythonModel:
    def execute(self, requests):
        arrays = [
            (np.arange(3, dtype=np.uint16), dict(dtype=(4, 16, 1))),
            (np.array([True, False]), {}),
            (np.float64(7), {}),
            (np.zeros((0, 4), np.int8), {}),
            (np.arange(2000, dtype=np.int64), dict(offset=256, versioned=True)),
        ]
        return [InferenceResponse([on_device(array, **how) for array, how in arrays])]
"""
    )
    outputs = stub.execute(Request()).responses[0].outputs
    assert [output.type for output in outputs] == [14, 1, 12, 6, 9]
    assert [output.shape for output in outputs] == [(3,), (2,), (), (0, 4), (2000,)]
    assert [output.data for output in outputs] == [
        np.arange(3, dtype=np.uint16).tobytes(), b"\1\0", np.float64(7).tobytes(), b"", np.arange(2000).tobytes(),
    ]  # fmt: skip


def test_bytes_that_are_written_late_are_waited_for(begin: Begin) -> None:
    stub = begin(
        """
import producer

class TritonPythonModel:
    def initialize(self, args):
        self.streams = [producer.new_stream(device) for device in (0, 1)]

    def execute(self, requests):
        return [
            InferenceResponse([on_device(r.inputs()[0].as_numpy() + 1, device, stream=self.streams[device])])
            for device, r in enumerate(requests)
        ]
"""
    )
    for size in (10, 10_000):
        executed = stub.execute(*requests(np.arange(size), np.arange(size) * 3))
        assert [r.outputs[0].data for r in executed.responses] == [
            (np.arange(size) + 1).tobytes(), (np.arange(size) * 3 + 1).tobytes(),
        ]  # fmt: skip


def test_a_tensor_sent_again_has_its_first_content(begin: Begin, counts: Counts) -> None:
    stub = begin(
        """
class TritonPythonModel:
    def initialize(self, args):
        self.made = OnDevice(np.arange(5000))
        self.tensor = Tensor.from_dlpack("OUT", self.made)

    def execute(self, requests):
        self.made.write(np.zeros(5000, int)) if requests[0].request_id() else None
        return [InferenceResponse([self.tensor])]
"""
    )
    first = stub.execute(Request()).responses[0].outputs[0]
    second = stub.execute(Request(id="write")).responses[0].outputs[0]
    assert first.data == second.data == np.arange(5000).tobytes()
    assert counts().counts["cuMemcpyDtoH_v2"] == 1


def test_outputs_that_are_not_wanted_are_not_copied(begin: Begin, counts: Counts) -> None:
    stub = begin(
        """
class TritonPythonModel:
    def execute(self, requests):
        return [InferenceResponse([on_device(np.arange(5000)), Tensor("OTHER", np.arange(3))])]
""",
        outputs=["OUT", "OTHER"],
    )
    (output,) = stub.execute(Request(outputs=["OTHER"])).responses[0].outputs
    assert output.name == "OTHER"
    assert counts().counts["bytes_to_host"] == 0


@pytest.mark.parametrize("fail", ["", "cuMemcpyDtoH_v2:1=2"])
def test_outputs_for_regions_of_clients_are_copied_there(begin: Begin, counts: Counts, fail: str) -> None:
    client = Client(1 << 20)
    stub = begin(DOUBLES, fail=fail)
    assert stub.map_region(2, client.fd, 1 << 20, writable=True) == 0
    array = np.arange(50_000)
    for turn in range(2):
        places = [("OUT", 2, 4096, array.nbytes)]
        executed = stub.execute(Request(1, [("IN", array)], places=places))
        if fail and not turn:
            assert executed.text == NOT_COPIED + "out of memory"
            continue
        (output,) = executed.responses[0].outputs
        assert output.region == 3
        assert client.bytes[4096 : 4096 + array.nbytes].tobytes() == (array * 2).tobytes()
    assert counts().counts["bytes_to_host"] == array.nbytes * (1 if fail else 2)


class TestFailures:
    @pytest.mark.parametrize("size", [10, 10_000])
    def test_of_one_copy_fails_one_response(self, begin: Begin, counts: Counts, size: int) -> None:
        stub = begin(DOUBLES, fail="cuMemcpyDtoH_v2:2=700")
        array = np.arange(size)
        executed = stub.execute(*requests(array, array, array))
        assert executed.text == ""
        errors = [response.error for response in executed.responses]
        assert errors == ["", NOT_COPIED + "an illegal memory access was encountered", ""]
        for response in (executed.responses[0], executed.responses[2]):
            assert response.outputs[0].data == (array * 2).tobytes()
        assert counts().live("allocation") == 0
        (response,) = stub.execute(*requests(array)).responses
        assert response.outputs[0].data == (array * 2).tobytes()

    def test_of_a_batch_of_one(self, begin: Begin, counts: Counts) -> None:
        stub = begin(DOUBLES, fail="cuMemcpyDtoH_v2:1=2")
        executed = stub.execute(*requests(np.arange(5000)))
        assert executed.text == NOT_COPIED + "out of memory"
        assert counts().live("allocation") == 0
        assert stub.execute(*requests(np.arange(5000))).text == ""

    def test_of_the_second_output(self, begin: Begin) -> None:
        stub = begin(
            """
class TritonPythonModel:
    def execute(self, requests):
        free = shared_memory.free_memory()
        outputs = [on_device(np.arange(5000)), on_device(np.arange(5000))]
        return [InferenceResponse([*outputs, Tensor("FREE", np.array([free]))])]
""",
            fail="cuMemcpyDtoH_v2:2=2",
            outputs=["OUT", "FREE"],
        )
        assert stub.execute(Request()).text == NOT_COPIED + "out of memory"
        outputs = stub.execute(Request()).responses[0].outputs
        assert outputs[2].array()[0] == 1 << 30, "the block of the first output was not given back"

    def test_of_an_import_is_the_models(self, begin: Begin) -> None:
        stub = begin(DOUBLES, fail="cuStreamSynchronize:1=719")
        text = stub.execute(*requests(np.arange(5000))).text
        assert "TritonModelException: Failed to synchronize CUDA device with id 0" in text
        assert stub.execute(*requests(np.arange(5000))).text == ""

    def test_of_a_device_that_is_lost(self, begin: Begin) -> None:
        stub = begin(DOUBLES, fail="cuMemcpyDtoH_v2:1+=700")
        for _ in range(3):
            executed = stub.execute(*requests(np.arange(5000)))
            assert executed.text == NOT_COPIED + "an illegal memory access was encountered"

    def test_without_memory_nothing_is_copied(self, begin: Begin, counts: Counts) -> None:
        stub = begin(DOUBLES, max_bytes=1 << 20)
        assert "Failed to increase the shared memory pool size" in stub.execute(*requests(np.arange(1 << 20))).text
        assert counts().counts["bytes_to_host"] == 0 == counts().live("allocation")
        assert stub.execute(*requests(np.arange(5000))).text == ""


class TestSenders:
    STREAMS = """
class TritonPythonModel:
    def execute(self, requests):
        told = []
        for request in requests:
            sender = request.get_response_sender()
            for number in range(3):
                try:
                    sender.send(InferenceResponse([on_device(np.arange(5000) + number, number % 2)]))
                except pb_utils.TritonModelException as error:
                    told.append(str(error))
            last = InferenceResponse([on_device(np.arange(5000) + 3)])
            try:
                sender.send(last, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except pb_utils.TritonModelException as error:
                told.append(str(error))
        if told:
            pb_utils.Logger.log_error("; ".join(told))
"""

    def test_responses_of_a_decoupled_model(self, begin: Begin, counts: Counts) -> None:
        stub = begin(self.STREAMS, decoupled=True)
        stub.execute(Request())
        sent = [response.outputs[0].data for response in stub.responses]
        assert sent == [(np.arange(5000) + number).tobytes() for number in range(4)]
        assert counts().counts["cuMemcpyDtoH_v2"] == 4 and counts().live("allocation") == 0

    def test_a_copy_that_fails_is_told_to_the_model(self, begin: Begin, counts: Counts) -> None:
        stub = begin(self.STREAMS, decoupled=True, fail="cuMemcpyDtoH_v2:2=2")
        stub.execute(Request())
        sent = [response.outputs[0].data for response in stub.responses]
        assert sent == [(np.arange(5000) + number).tobytes() for number in (0, 2, 3)]
        assert counts().live("allocation") == 0

    def test_a_last_copy_that_fails_ends_the_request(self, begin: Begin) -> None:
        stub = begin(self.STREAMS, decoupled=True, fail="cuMemcpyDtoH_v2:4=2")
        stub.execute(Request())
        assert [response.error for response in stub.responses] == ["", "", "", NOT_COPIED + "out of memory"]

    def test_of_another_thread(self, begin: Begin) -> None:
        stub = begin(
            """
import threading

class TritonPythonModel:
    def execute(self, requests):
        def answer(request):
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            response = InferenceResponse([on_device(request.inputs()[0].as_numpy() * 3, 1)])
            request.get_response_sender().send(response, flags=final)

        threads = [threading.Thread(target=answer, args=(request,)) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [None] * len(requests)
"""
        )
        stub.execute(*requests(*(np.arange(5000) + n for n in range(4))))
        sent = {response.handle: response.outputs[0].data for response in stub.responses}
        assert sent == {n + 1: ((np.arange(5000) + n) * 3).tobytes() for n in range(4)}


def test_deleters_may_use_the_api(begin: Begin) -> None:
    """They run without our lock: a deleter that sends to the server does not deadlock."""
    stub = begin(
        """
class Talks(OnDevice):
    def _delete(self, at):
        super()._delete(at)
        pb_utils.Logger.log_info("gone")
        shared_memory.free_memory()

class TritonPythonModel:
    def execute(self, requests):
        kept = [Tensor.from_dlpack("OUT", Talks(np.arange(5000))) for _ in range(3)]
        return [InferenceResponse(kept)]
"""
    )
    for _ in range(3):
        assert stub.execute(Request()).text == ""


def test_a_model_of_the_cpu_has_no_driver(begin: Begin, counts: Counts) -> None:
    stub = begin(
        """
class TritonPythonModel:
    def execute(self, requests):
        with open("/proc/self/maps") as maps:
            there = "libcuda" in maps.read()
        x = requests[0].inputs()[0]
        x.to_dlpack()
        return [InferenceResponse([Tensor("OUT", np.array([there])), x])]
"""
    )
    assert stub.execute(*requests(np.arange(5000))).responses[0].outputs[0].data == b"\0"
    assert sum(counts().counts.values()) == 0


def test_a_process_that_the_model_forks_is_told(begin: Begin, counts: Counts) -> None:
    stub = begin(
        """
import os

class TritonPythonModel:
    def execute(self, requests):
        made = OnDevice(np.arange(5000))
        tensor = Tensor.from_dlpack("IN", made)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            texts = []
            for work in (
                lambda: Tensor.from_dlpack("IN", made),
                lambda: pb_utils.InferenceRequest(
                    model_name="other", inputs=[tensor], requested_output_names=["OUT"]
                ).exec(),
            ):
                try:
                    work()
                except pb_utils.TritonModelException as error:
                    texts.append(str(error))
            os.write(write, "\\n".join(texts).encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        text = os.read(read, 10000)
        os.close(read)
        return [InferenceResponse([Tensor("OUT", np.array([text], object)), tensor])]
""",
        outputs=["OUT", "IN"],
    )
    executed = stub.execute(Request())
    text, output = executed.responses[0].outputs
    said = text.array()[0].decode().splitlines()
    assert len(said) == 2 and all("CUDA was in use when this process was forked" in line for line in said), said
    assert output.data == np.arange(5000).tobytes()
    assert counts().counts["after_fork"] == 0
