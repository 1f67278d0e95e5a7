"""Outputs in regions of clients, written by the stub."""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path
from threading import Event, Thread
from typing import Any, Callable, Dict, Iterator

import numpy as np
import pytest
from c_python_backend_utils.tensor import Tensor
from conftest import Start
from frames import InRegion, Request
from pb_stub.places import Places, Target
from supervisor import StubDied, Supervisor
from test_memory import eventually
from test_regions import PAGE, SIZE, UINT8, Client

from models import IDENTITY, model

ARENA, CLIENT = 2, 3

#: Where the client's file is mapped for inputs, and for outputs.
READ, WRITE = 1, 2


@pytest.fixture
def client() -> Iterator[Client]:
    it = Client(4 * SIZE)
    yield it
    os.close(it.fd)


Started = Callable[..., Supervisor]


@pytest.fixture
def started(start: Start, client: Client) -> Started:
    """Starts a stub that has mapped the client's file for reading and writing."""

    def begin(source: str = IDENTITY, **named: Any) -> Supervisor:
        stub = start(source, **named)
        assert stub.map_region(READ, client.fd, 4 * SIZE) == 0
        assert stub.map_region(WRITE, client.fd, 4 * SIZE, writable=True) == 0
        return stub

    return begin


def at(offset: int, size: int = SIZE, type_: int = UINT8) -> InRegion:
    return InRegion(READ, offset, type_, (size,), size)


def run(stub: Supervisor, offset: int, value: Any, room: int = SIZE, **named: Any) -> Any:
    """Request an output at an offset; returns the output."""
    (response,) = stub.execute(Request(1, [("IN", value)], places=[("OUT", WRITE, offset, room)], **named)).responses
    assert not response.error, response.error
    assert not stub.loans
    (output,) = response.outputs
    return output


class TestWritten:
    def test_identity(self, started: Started, client: Client) -> None:
        stub = started()
        client.bytes[:SIZE] = np.arange(SIZE) % 251
        output = run(stub, SIZE, at(0))
        assert (output.region, output.number, output.ticket, output.shape) == (CLIENT, WRITE, 0, (SIZE,))
        np.testing.assert_array_equal(client.bytes[SIZE : 2 * SIZE], np.arange(SIZE) % 251)
        assert (client.bytes[2 * SIZE :] == 2).all()

    def test_again_and_again(self, started: Started, client: Client) -> None:
        stub = started()
        for i in range(20):
            client.bytes[:SIZE] = i
            assert run(stub, (1 + i % 3) * SIZE, at(0)).region == CLIENT
            assert (client.bytes[(1 + i % 3) * SIZE :][:SIZE] == i).all()

    def test_an_input_that_is_passed_on_as_it_came(self, started: Started, client: Client) -> None:
        stub = started(model("return [pb_utils.InferenceResponse([requests[0].inputs()[0]])]"), outputs=["IN"])
        client.bytes[:SIZE] = 9
        request = Request(1, [("IN", at(0))], places=[("IN", WRITE, SIZE, SIZE)])
        (response,) = stub.execute(request).responses
        assert response.outputs[0].region == CLIENT and (client.bytes[SIZE : 2 * SIZE] == 9).all()

    def test_an_array_of_the_model(self, started: Started, client: Client) -> None:
        stub = started(
            model("return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.arange(40_000, dtype=np.int32))])]")
        )
        output = run(stub, 3, np.arange(3), room=160_001)  # regardless of alignment
        assert output.region == CLIENT
        np.testing.assert_array_equal(client.bytes[3:160_003].view(np.int32), np.arange(40_000))
        assert client.bytes[160_003] == 2 and (client.bytes[:3] == 2).all()

    @pytest.mark.parametrize(
        "made",
        [
            "pb_utils.Tensor('OUT', np.matrix(np.arange(70_000) % 251, np.uint8))",
            "pb_utils.Tensor('OUT', (np.arange(140_000) % 251).astype(np.uint8).reshape(2, 70_000)[:1])",
            "pb_utils.Tensor.from_dlpack('OUT', (np.arange(70_000) % 251).astype(np.uint8))",
            "pb_utils.Tensor('OUT', np.stack([np.arange(70_000) % 251] * 2, 1).astype(np.uint8)[:, 1])",
        ],
    )
    def test_arrays_of_other_kinds(self, started: Started, client: Client, made: str) -> None:
        if "dlpack" in made and not hasattr(np.ndarray, "__dlpack__"):
            pytest.skip("this numpy knows no DLPack")
        stub = started(model(f"return [pb_utils.InferenceResponse([{made}])]"))
        assert run(stub, 3, np.arange(3)).region == CLIENT
        np.testing.assert_array_equal(client.bytes[3:70_003], np.arange(70_000) % 251)
        assert client.bytes[70_003] == 2

    def test_a_modified_tensor_is_sent_with_its_new_content(self, started: Started, client: Client) -> None:
        stub = started(model("""
            self.kept = getattr(self, "kept", None) or pb_utils.Tensor('OUT', np.zeros(70_000, np.uint8))
            self.kept.as_numpy()[:] += 1
            return [pb_utils.InferenceResponse([self.kept])]
        """))  # fmt: skip
        for i in (1, 2):
            assert run(stub, i * SIZE, np.arange(3)).region == CLIENT
            assert (client.bytes[i * SIZE :][:70_000] == i).all()

    def test_a_part_of_an_input(self, started: Started, client: Client) -> None:
        stub = started(
            model(
                "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', requests[0].inputs()[0].as_numpy()[7:100_007])])]"
            )
        )
        client.bytes[:SIZE] = np.arange(SIZE) % 251
        assert run(stub, SIZE, at(0)).region == CLIENT
        np.testing.assert_array_equal(client.bytes[SIZE : SIZE + 100_000], np.arange(7, 100_007) % 251)

    def test_a_modified_input_as_output(self, started: Started, client: Client) -> None:
        stub = started(
            model(
                "x = requests[0].inputs()[0].as_numpy(); x += 1; return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', x)])]"
            )
        )
        assert run(stub, SIZE, at(0)).region == CLIENT
        assert (client.bytes[:SIZE] == 2).all() and (client.bytes[SIZE : 2 * SIZE] == 3).all()

    def test_two_outputs_of_one_region_and_one_that_is_not_placed(self, started: Started, client: Client) -> None:
        stub = started(
            model("""
            x = [np.full(70_000, i, np.uint8) for i in (3, 4, 5)]
            return [pb_utils.InferenceResponse([pb_utils.Tensor(n, a) for n, a in zip(('A', 'B', 'C'), x)])]
        """), outputs=["A", "B", "C"],
        )  # fmt: skip
        places = [("A", WRITE, SIZE, 70_000), ("C", WRITE, 2 * SIZE, SIZE)]
        (response,) = stub.execute(Request(1, [("IN", np.arange(3))], places=places)).responses
        assert [output.region for output in response.outputs] == [CLIENT, ARENA, CLIENT]
        assert [int(response[name][0]) for name in "ABC"] == [3, 4, 5]
        assert (client.bytes[SIZE:][:70_000] == 3).all() and (client.bytes[2 * SIZE :][:70_000] == 5).all()

    def test_requests_of_one_batch(self, started: Started, client: Client) -> None:
        stub = started()
        client.bytes[SIZE : 2 * SIZE] = 7
        first = Request(
            1, [("IN", at(0))], places=[("OUT", WRITE, 2 * SIZE, SIZE)], outputs=["OUT"], id="ö", parameters="{}"
        )
        second = Request(2, [("IN", at(SIZE))], places=[("OUT", WRITE, 3 * SIZE, SIZE)])
        result = stub.execute(first, second, Request(3, [("IN", np.arange(4))]))
        assert [response.outputs[0].region for response in result.responses] == [CLIENT, CLIENT, 0]
        assert (client.bytes[2 * SIZE : 3 * SIZE] == 2).all() and (client.bytes[3 * SIZE :] == 7).all()

    def test_a_response_sender(self, started: Started, client: Client) -> None:
        stub = started(model("""
            x = requests[0].inputs()[0].as_numpy()
            sender = requests[0].get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('OUT', x)]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """))  # fmt: skip
        stub.execute(Request(1, [("IN", at(0))], places=[("OUT", WRITE, SIZE, SIZE)]))
        (response,) = stub.responses
        assert response.outputs[0].region == CLIENT and (client.bytes[SIZE : 2 * SIZE] == 2).all()

    def test_one_tensor_for_two_requests(self, started: Started, client: Client) -> None:
        stub = started(model("""
            t = pb_utils.Tensor('OUT', np.full(70_000, 6, np.uint8))
            return [pb_utils.InferenceResponse([t]) for _ in requests]
        """))  # fmt: skip
        placed = [("OUT", WRITE, SIZE, SIZE)]
        requests = [Request(i, [("IN", np.arange(3))], places=placed if i != 2 else ()) for i in (1, 2, 3)]
        result = stub.execute(*requests)
        assert [response.outputs[0].region for response in result.responses] == [CLIENT, ARENA, ARENA]
        assert (client.bytes[SIZE:][:70_000] == 6).all()


class TestInTheArena:
    """Outputs left to the supervisor."""

    @pytest.mark.parametrize(
        ("made", "room"),
        [
            ("np.zeros(65_535, np.uint8)", SIZE),  # it is small
            ("np.zeros(70_001, np.uint8)", 70_000),  # it is too large
            ("np.array([b'x' * 70_000], np.object_)", SIZE),
            ("np.zeros((0, 5), np.uint8)", SIZE),
        ],
    )
    def test_other_outputs(self, started: Started, client: Client, made: str, room: int) -> None:
        stub = started(model(f"return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', {made})])]"))
        assert run(stub, SIZE, np.arange(3), room).region in (0, ARENA)
        assert (client.bytes == 2).all()

    def test_a_region_that_is_not_mapped_to_be_written(self, started: Started, client: Client) -> None:
        stub = started()
        for place in [
            ("OUT", READ, 0, SIZE),
            ("OUT", 9, 0, SIZE),
            ("OUT", WRITE, SIZE, 4 * SIZE),
            ("OUT", WRITE, 1 << 63, 1 << 63),
        ]:
            result = stub.execute(Request(1, [("IN", np.arange(3))], places=[place]))
            assert result.status == 1 and "an output is wanted in" in result.text
        assert stub.unmap_region(WRITE) == 2
        assert (
            "which is not mapped for that"
            in stub.execute(Request(1, [("IN", at(0))], places=[("OUT", WRITE, 0, SIZE)])).text
        )
        assert (client.bytes == 2).all()

    def test_a_client_that_has_gone(self, started: Started, client: Client, tmp_path: Path) -> None:
        stub = started(model("""
            import os, time
            open(requests[0].request_id() + ".begun", "w").close()
            while not os.path.exists(requests[0].request_id() + ".over"):
                time.sleep(0.001)
            return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', requests[0].inputs()[0].as_numpy())])]
        """))  # fmt: skip
        mark = str(tmp_path / "mark")
        stub.start_batch(Request(1, [("IN", at(0))], id=mark, places=[("OUT", WRITE, SIZE, SIZE)]))
        eventually(stub, lambda: os.path.exists(mark + ".begun"))
        client.bytes[SIZE:] = 0
        stub.send("CANCEL", 0, struct.pack("<Q", 1))
        open(mark + ".over", "w").close()
        (response,) = stub.finish_batch().responses
        assert response.outputs[0].region == ARENA and (response["OUT"] == 2).all() and (client.bytes[SIZE:] == 0).all()

    def test_a_file_that_is_too_short(self, started: Started, client: Client) -> None:
        stub = started()
        os.truncate(client.fd, 2 * SIZE)
        assert run(stub, 3 * SIZE, at(0)).region == ARENA  # seen before it is written
        os.truncate(client.fd, 4 * SIZE)
        assert run(stub, 3 * SIZE, at(0)).region == CLIENT

    def test_a_file_that_is_truncated_later_ends_the_stub(self, started: Started, client: Client) -> None:
        stub = started()
        assert run(stub, 3 * SIZE, at(0)).region == CLIENT
        os.truncate(client.fd, 2 * SIZE)
        with pytest.raises(StubDied):
            run(stub, 3 * SIZE, at(0))
        assert stub.wait_exit() == -signal.SIGBUS


class TestInputsInTheWay:
    def test_the_very_range(self, started: Started, client: Client) -> None:
        stub = started(environment={})  # a forked stub has its own page faults
        client.bytes[:SIZE] = 4
        before = stub_faults(stub)
        assert run(stub, 0, at(0)).region == CLIENT and (client.bytes[:SIZE] == 4).all()
        assert run(stub, 0, at(0)).region == CLIENT
        assert stub_faults(stub) - before < 40  # no page was touched

    def test_the_very_range_passed_on_as_it_came(self, started: Started) -> None:
        stub = started(model("return [pb_utils.InferenceResponse([requests[0].inputs()[0]])]"), outputs=["IN"])
        request = Request(1, [("IN", at(0))], places=[("IN", WRITE, 0, SIZE)])
        assert stub.execute(request).responses[0].outputs[0].region == CLIENT

    @pytest.mark.parametrize("how", ["+ 1", "[:]", "[::-1]"])
    def test_the_very_range_with_other_bytes(self, started: Started, client: Client, how: str) -> None:
        stub = started(
            model(
                f"x = requests[0].inputs()[0].as_numpy(); x[0] = 9; return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', x{how})])]"
            )
        )
        output = run(stub, 0, at(0))
        assert output.region == ARENA and (client.bytes == 2).all()
        assert sum(output.array().tolist()) == 2 * SIZE + 7 + (SIZE if how == "+ 1" else 0)

    @pytest.mark.parametrize("by", [-1, 1, PAGE, SIZE - 1, -PAGE - 5])
    def test_overlaps(self, started: Started, client: Client, by: int) -> None:
        stub = started()
        client.bytes[SIZE : 2 * SIZE] = np.arange(SIZE) % 251
        output = run(stub, SIZE + by, at(SIZE))
        assert output.region == ARENA
        np.testing.assert_array_equal(output.array(), np.arange(SIZE) % 251)

    def test_side_by_side(self, started: Started) -> None:
        stub = started()
        assert [run(stub, offset, at(SIZE)).region for offset in (0, 2 * SIZE)] == [CLIENT, CLIENT]

    def test_other_regions_of_the_file(self, started: Started, client: Client) -> None:
        stub = started()
        assert stub.map_region(3, client.fd, 2 * SIZE, PAGE) == 0
        client.bytes[PAGE : SIZE + PAGE] = np.arange(SIZE) % 251
        assert run(stub, 100, InRegion(3, 0, UINT8, (SIZE,), SIZE)).region == ARENA
        output = run(stub, PAGE, InRegion(3, 0, UINT8, (SIZE,), SIZE))
        assert output.region == CLIENT  # the same range, by another name
        np.testing.assert_array_equal(output.array(), np.arange(SIZE) % 251)

    def test_outputs_in_each_others_inputs(self, started: Started, client: Client) -> None:
        stub = started(model("""
            a, b = [t.as_numpy() for t in requests[0].inputs()]
            return [pb_utils.InferenceResponse([pb_utils.Tensor('A', a), pb_utils.Tensor('B', b)])]
        """), inputs=["A", "B"], outputs=["A", "B"])  # fmt: skip
        client.bytes[SIZE : 2 * SIZE] = 8
        request = Request(1, [("A", at(0)), ("B", at(SIZE))], places=[("A", WRITE, SIZE, SIZE), ("B", WRITE, 0, SIZE)])
        (response,) = stub.execute(request).responses
        assert (response["A"] == 2).all() and (response["B"] == 8).all()

    def test_a_kept_input_as_output(self, started: Started, client: Client) -> None:
        stub = started(model("""
            x = requests[0].inputs()[0].as_numpy()
            kept, self.kept = getattr(self, "kept", None), x
            return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', x if kept is None else kept)])]
        """))  # fmt: skip
        assert run(stub, SIZE, at(0)).region == CLIENT
        client.bytes[:SIZE] = 5
        output = run(stub, 0, at(2 * SIZE))  # the former place of the kept input
        assert output.region == CLIENT and (client.bytes[:SIZE] == 2).all()


class TestEnd:
    """Writes by a thread while another one ends the request."""

    def test_the_end_waits_for_a_running_write(self) -> None:
        begun, go_on, ended = Event(), Event(), Event()

        class Slow(Target):
            def __init__(self) -> None:
                self.file, self.start, self.size = (0, 0), 0, SIZE

            def prepare(self, _offset: int, _size: int) -> bool:
                return True

            def write(self, _offset: int, _data: Any) -> None:
                begun.set()
                assert go_on.wait(60)
                assert not ended.is_set()

        class NoInputs:
            gone: Callable[[int], bool] = staticmethod(lambda _handle: False)
            alive: Dict[int, Any] = {}  # noqa: RUF012  # of a protocol

            def conflicts(self, _tensor: Tensor, _file: tuple[int, int], _begin: int, _size: int) -> bool | None:
                return False

            def bytes_of(self, tensor: Tensor) -> Any:
                return tensor._data

        places = Places({"OUT": 1}, 1, NoInputs())
        places.add("OUT", Slow(), WRITE, 8, SIZE - 8)
        tensor = Tensor("OUT", np.zeros(70_000, np.uint8))
        written: list[Any] = []
        writing = Thread(target=lambda: written.append(places.write(tensor)))
        writing.start()
        assert begun.wait(60)

        def end() -> None:
            places.end()
            ended.set()

        ending = Thread(target=end)
        ending.start()
        go_on.set()
        writing.join()
        ending.join()
        assert written == [(CLIENT, WRITE, 8, 70_000)]
        assert places.write(tensor) is None


def stub_faults(stub: Supervisor) -> int:
    with open(f"/proc/{stub.pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[7])


def test_no_descriptor_is_kept_but_that_of_the_mapping(started: Started, client: Client) -> None:
    stub = started()

    def count() -> int:
        folder = f"/proc/{stub.pid}/fd"
        return sum("memfd:client" in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))

    before = count()
    for number in range(3, 50):
        assert stub.map_region(number, client.fd, SIZE, writable=True) == 0
        assert stub.unmap_region(number) == 2
    assert stub.map_region(50, client.fd, 5 * SIZE, writable=True) == 1
    assert stub.map_region(51, client.fd, SIZE, 7, writable=True) == 1
    read_only = client.read_only()
    assert stub.map_region(52, read_only, SIZE, writable=True) == 1
    os.close(read_only)
    assert count() == before
