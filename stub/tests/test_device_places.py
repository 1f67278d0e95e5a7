"""Outputs that real stubs copy to clients' device memory, with the fake driver."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import fakecuda
import numpy as np
import pytest
from conftest import Begin, Counts, Start
from devicemodels import HEAD, HERE, MISTAKES
from fakecuda import State
from frames import InDevice, Lent, Output, Request
from supervisor import Supervisor
from test_memory import eventually

FRAME, ARENA, PLACED = 0, 2, 6

#: The size of the client's allocation: four parts of N values, filled with 0, 1, …
N = 50_000
SIZE = 4 * N

#: Answers with X + 1 as A and Y + 1 as B, on the device; the request's id modifies this.
PLUS = """
import os
import time

class TritonPythonModel:
    def initialize(self, args):
        self.kept = None

    def execute(self, requests):
        return [InferenceResponse(self.outputs(r, r.request_id(), *r.inputs())) for r in requests]

    def outputs(self, r, how, *inputs):
        if how == "as they came":
            return list(inputs)
        if how == "keep":
            self.kept = r
            return [on_device(np.zeros(3, np.float32), name="A")]
        if how == "kept":
            (x,), self.kept = self.kept.inputs(), None
            return [Tensor("A", values(x))]
        if how.startswith("/"):
            open(how + ".begun", "w").close()
            while not os.path.exists(how + ".over"):
                time.sleep(0.001)
        arrays = [(x.as_numpy() if x.is_cpu() else values(x)) + 1 for x in inputs]
        if how.startswith("host"):
            return [Tensor(name, array) for name, array in zip("AB", arrays)]
        return [on_device(array, how == "other", name) for name, array in zip("AB", arrays)]
"""

#: A client that makes an allocation on the first device; it reads and writes it as it is told.
CLIENT = """
import sys
sys.path[:0] = sys.argv[1:]
import ctypes
import numpy as np
from c_python_backend_utils import cuda
from producer import OnDevice

made = OnDevice(np.arange(200_000, dtype=np.float32))
device = cuda.device(0)
print(device.uuid().hex(), device.handle_of(made.address).hex(), flush=True)
for line in sys.stdin:
    if line.split()[0] == "write":
        made.write(np.full(200_000, float(line.split()[1]), np.float32))
        print(flush=True)
    else:
        raw = (ctypes.c_char * 800_000)()
        device.copy_to_host(ctypes.addressof(raw), made.address, len(raw))
        with open(line.split()[1], "wb") as file:
            file.write(raw.raw)
        print(flush=True)
"""


class Client:
    """A process that has registered memory on a device."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "memory"
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(HERE), str(HERE.parents[1] / "pyutils")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, **fakecuda.environment(folder / "counts")},
        )  # fmt: skip
        uuid, handle = map(bytes.fromhex, self.hear().split())
        self.lent = Lent(0, 4 * SIZE, uuid, handle)

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.hear()

    def read(self) -> np.ndarray:
        """All four parts."""
        self.say(f"read {self.file}")
        return np.frombuffer(self.file.read_bytes(), np.float32).reshape(4, N)

    def fill(self, value: int) -> None:
        self.say(f"write {value}")

    def end(self) -> None:
        self.process.communicate()

    def part(self, part: int, by: int = 0, number: int = 1) -> InDevice:
        """A part as an input, shifted by some values."""
        return InDevice(number, part * SIZE + 4 * by, (N,), SIZE, client=True)


def at(part: int, name: str = "A", room: int = SIZE, by: int = 0, number: int = 1) -> tuple[str, int, int, int]:
    """A part as the place of an output."""
    return name, number, part * SIZE + 4 * by, room


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path)
    yield made
    made.end()


@pytest.fixture
def begin(start: Start, tmp_path: Path, client: Client) -> Iterator[Begin]:
    """Starts a stub that knows the client's allocation: `begin(source, fail=..., **settings)`."""

    def begin(source: str = PLUS, fail: str = "", **settings: Any) -> Supervisor:
        environment = fakecuda.environment(tmp_path / "counts", fail=fail)
        names = {"inputs": ["X", "Y"], "outputs": ["A", "B", "X", "Y"], **settings}
        stub = start(HEAD + source, environment=environment, **names)
        stub.announce(1, client.lent)
        return stub

    yield begin
    state = State(tmp_path / "counts")
    assert {name: state.counts.get(name, 0) for name in MISTAKES} == dict.fromkeys(MISTAKES, 0)


def ask(stub: Supervisor, *inputs: Any, to: Any = (), how: str = "", **named: Any) -> list[Output]:
    """Answer a request; returns its outputs."""
    request = Request(1, list(zip("XY", inputs)), there=to, id=how, **named)
    (response,) = stub.execute(request).responses
    assert not response.error, response.error
    return response.outputs


def settled(stub: Supervisor) -> None:
    """Make the stub return its tickets."""
    for _ in range(2):
        stub.execute(Request(9))
    assert stub.loans == {}, "tickets did not come back"


SOME = np.arange(N, dtype=np.float32)


class TestPlaced:
    def test_an_output_goes_from_device_to_device(self, begin: Begin, client: Client, counts: Counts) -> None:
        stub = begin()
        before = counts().counts
        for turn in range(3):
            (output,) = ask(stub, SOME + turn, to=[at(2)])
            assert (output.region, output.number, output.ticket, output.element) == (PLACED, 1, 0, 0)
            assert (output.shape, output.data) == ((N,), struct.pack("<Q", 2 * SIZE))
            after = counts().counts
            assert after["bytes_to_host"] == before["bytes_to_host"], "it came by the host"
            before["bytes_to_host"] += 4 * SIZE
            parts = client.read()
            assert (parts[2] == SOME + turn + 1).all()
            assert (parts[[0, 1, 3]] == np.arange(4 * N).reshape(4, N)[[0, 1, 3]]).all()
        assert stub.lent == {}, "it made a pool for that"
        assert counts().counts["cuIpcOpenMemHandle_v2"] == 1 == counts().live("opened")
        assert counts().counts["cuMemcpyDtoD_v2"] == 3
        stub.send("FREED", 1)
        settled(stub)
        assert counts().live("opened") == 0 and counts().counts["cuIpcCloseMemHandle"] == 1
        assert counts().live("allocation") == 1, "that of the client"

    @pytest.mark.parametrize("n", [1, 3, 1024, N])
    def test_of_any_size(self, begin: Begin, client: Client, n: int) -> None:
        (output,) = ask(begin(), SOME[:n], to=[at(1, room=SIZE)])
        assert (output.region, output.shape) == (PLACED, (n,))
        part = client.read()[1]
        assert (part[:n] == SOME[:n] + 1).all() and (part[n:] == np.arange(N + n, 2 * N)).all()

    def test_from_another_device(self, begin: Begin, client: Client, counts: Counts) -> None:
        (output,) = ask(begin(), SOME, to=[at(0)], how="other")
        assert output.region == PLACED and (client.read()[0] == SOME + 1).all()
        assert counts().counts["cuMemcpyPeer"] == 1

    def test_inputs_and_outputs_of_one_client(self, begin: Begin, client: Client, counts: Counts) -> None:
        stub = begin()
        for turn in (1, 2):
            for output in ask(stub, client.part(0), client.part(1), to=[at(0), at(3, "B")]):
                assert output.region == PLACED
            parts = client.read()
            assert (parts[0] == SOME + turn).all() and (parts[3] == SOME + N + 1).all()
        settled(stub)
        assert counts().counts["cuIpcOpenMemHandle_v2"] == 1

    def test_from_the_host_where_the_device_is_in_use(self, begin: Begin, client: Client) -> None:
        stub = begin()
        (output,) = ask(stub, client.part(1), to=[at(0)], how="host")
        assert output.region == PLACED and (client.read()[0] == SOME + N + 1).all()
        (small,) = ask(stub, SOME[:5], to=[at(0)], how="host")
        assert small.region == FRAME and (small.array() == SOME[:5] + 1).all()

    def test_no_device_is_used_for_an_output_of_the_host(self, begin: Begin, counts: Counts) -> None:
        stub = begin()
        before = counts().counts
        (output,) = ask(stub, SOME, to=[at(0)], how="host")
        assert output.region == ARENA and output.data == (SOME + 1).tobytes()
        assert counts().counts == before

    def test_requests_of_a_batch(self, begin: Begin, client: Client) -> None:
        requests = [Request(number + 1, [("X", SOME * number)], there=[at(number)]) for number in range(3)]
        responses = begin().execute(*requests, Request(4, [("X", SOME)])).responses
        assert [response.outputs[0].region for response in responses] == [PLACED, PLACED, PLACED, ARENA]
        assert (client.read()[:3] == np.arange(3)[:, None] * SOME + 1).all()

    def test_a_response_sender(self, begin: Begin, client: Client) -> None:
        stub = begin("""
class TritonPythonModel:
    def execute(self, requests):
        response = InferenceResponse([on_device(requests[0].inputs()[0].as_numpy() + 1, name="A")])
        requests[0].get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""")
        stub.execute(Request(1, [("X", SOME)], there=[at(1)]))
        (response,) = stub.responses
        assert response.outputs[0].region == PLACED and (client.read()[1] == SOME + 1).all()


class TestInputsInTheWay:
    """Written outputs must not be visible to later readers of an input."""

    @pytest.mark.parametrize("by", [0, 1, -1, 300])
    def test_an_output_over_its_own_input(self, begin: Begin, client: Client, by: int) -> None:
        (output,) = ask(begin(), client.part(1), to=[at(1, "X", by=by)], how="as they came")
        assert output.region == PLACED
        assert (client.read().reshape(-1)[N + by : 2 * N + by] == SOME + N).all()

    @pytest.mark.parametrize("number", [1, 2])
    def test_inputs_change_places(self, begin: Begin, client: Client, number: int) -> None:
        stub = begin()
        stub.announce(2, client.lent)  # the same memory, registered again
        outputs = ask(
            stub, client.part(0), client.part(1, number=number), how="as they came",
            to=[at(1, "X", number=number), at(0, "Y")],
        )  # fmt: skip
        assert [output.region for output in outputs] == [PLACED, PLACED]
        parts = client.read()
        assert (parts[0] == SOME + N).all() and (parts[1] == SOME).all()
        settled(stub)

    def test_an_unread_kept_input_does_not_change(self, begin: Begin, client: Client) -> None:
        stub = begin()
        responses = stub.execute(
            Request(1, [("X", client.part(0))], id="keep"), Request(2, [("X", SOME)], there=[at(0)])
        ).responses
        assert responses[1].outputs[0].region == PLACED and (client.read()[0] == SOME + 1).all()
        client.fill(9)
        (output,) = ask(stub, how="kept")
        assert (np.frombuffer(output.data, np.float32) == SOME).all()
        settled(stub)


class TestByTheHost:
    """Outputs left to the server."""

    def test_a_client_that_has_ended(self, begin: Begin, client: Client, counts: Counts) -> None:
        stub = begin()
        client.end()
        for _ in range(2):
            (output,) = ask(stub, SOME, to=[at(0)])
            assert output.region == ARENA and output.data == (SOME + 1).tobytes()
            stub.give_back(output.ticket)
        stub.send("FREED", 1)
        settled(stub)
        assert counts().live("opened") == 0

    def test_a_client_that_ends_later(self, begin: Begin, client: Client) -> None:
        stub = begin()
        assert ask(stub, SOME, to=[at(0)])[0].region == PLACED
        client.end()
        assert ask(stub, SOME, to=[at(0)])[0].region == PLACED, "it is open here"

    @pytest.mark.parametrize("function", ["cuIpcOpenMemHandle_v2", "cuMemcpyDtoD_v2", "cuStreamSynchronize"])
    @pytest.mark.parametrize("code", [1, 2, 801])
    def test_a_driver_that_refuses(self, begin: Begin, client: Client, function: str, code: int) -> None:
        stub = begin(fail=f"{function}:{2 if function == 'cuStreamSynchronize' else 1}={code}")
        outputs = [ask(stub, SOME, to=[at(0)])[0] for _ in range(2)]
        regions = [output.region for output in outputs]
        assert sorted(regions) in ([ARENA, PLACED], [PLACED, PLACED]) and outputs[-1].region == PLACED
        assert (client.read()[0] == SOME + 1).all()
        if function != "cuStreamSynchronize":
            assert outputs[0].region == ARENA and outputs[0].data == (SOME + 1).tobytes()

    def test_a_place_that_is_too_small(self, begin: Begin, client: Client) -> None:
        (output,) = ask(begin(), SOME, to=[at(0, room=SIZE - 1)])
        assert output.region == ARENA
        assert (client.read()[0] == SOME).all()

    def test_a_tensor_sent_before_is_written_too(self, begin: Begin, client: Client) -> None:
        stub = begin("""
class TritonPythonModel:
    def execute(self, requests):
        tensor = on_device(requests[0].inputs()[0].as_numpy() + 1, name="A")
        return [InferenceResponse([tensor]) for _ in requests]
""")
        first = Request(1, [("X", SOME)])
        responses = stub.execute(first, Request(2, [("X", SOME)], there=[at(0)])).responses
        assert [response.outputs[0].region for response in responses] == [ARENA, ARENA]
        responses = stub.execute(Request(1, [("X", SOME)], there=[at(0)]), Request(2, there=[at(1)])).responses
        assert [response.outputs[0].region for response in responses] == [PLACED, PLACED], "it is read once more"
        assert (client.read()[:2] == SOME + 1).all()

    def test_a_client_that_has_gone(self, begin: Begin, client: Client, tmp_path: Path) -> None:
        stub = begin()
        mark = str(tmp_path / "mark")
        stub.start_batch(Request(1, [("X", SOME)], id=mark, there=[at(0)]))
        eventually(stub, lambda: os.path.exists(mark + ".begun"))
        stub.send("CANCEL", 0, struct.pack("<Q", 1))
        open(mark + ".over", "w").close()
        (response,) = stub.finish_batch().responses
        assert response.outputs[0].region == ARENA and (client.read()[0] == SOME).all()


class TestUnknown:
    @pytest.mark.parametrize(
        ("place", "why"),
        [
            (("A", 2, 0, SIZE), "an output is wanted in allocation 2, which was not announced"),
            (("A", 1, 0, 4 * SIZE + 1), f"an output is wanted in {4 * SIZE + 1} bytes at 0 of region 1, of {4 * SIZE}"),
            (("A", 1, 3 * SIZE + 4, SIZE), "an output is wanted in"),
            (("A", 1, 1 << 63, 1 << 63), "an output is wanted in"),
        ],
    )
    def test_places_that_are_not_there(self, begin: Begin, place: tuple[str, int, int, int], why: str) -> None:
        stub = begin()
        executed = stub.execute(Request(1, [("X", SOME)], there=[place]))
        assert executed.status == 1 and why in executed.text
        assert ask(stub, SOME, to=[at(0)])[0].region == PLACED
        settled(stub)

    def test_after_freed(self, begin: Begin, counts: Counts) -> None:
        stub = begin()
        stub.execute(Request(1, [("X", SOME)], id="keep", there=[at(0)]))  # the model keeps the request
        ask(stub, SOME, to=[at(0)])
        stub.send("FREED", 1)
        assert stub.execute(Request(1, [("X", SOME)], there=[at(0)])).status == 1
        late = time.monotonic() + 30
        while counts().live("opened"):
            assert time.monotonic() < late, "a request that the model keeps has it open"
            stub.execute(Request(9))
