"""Inputs in regions of clients, mapped by the stub."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import struct
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest
from conftest import Start
from frames import InRegion, Request
from supervisor import StubDied, Supervisor
from test_memory import eventually

from models import IDENTITY, model

PAGE = mmap.PAGESIZE
SIZE = 64 * PAGE
UINT8 = 2

#: Sums its input; the id of a request says what else it does.
SUMS = """
    def execute(self, requests):
        responses = []
        for request in requests:
            x = request.inputs()[0].as_numpy()
            how = request.request_id()
            if how == "keeps":
                self.kept = x
            if how == "keeps the request":
                self.kept = request
            if how == "lets go":
                self.kept = None
            if how == "asks for kept":
                kept = self.kept
                x = kept if isinstance(kept, np.ndarray) else kept.inputs()[0].as_numpy()
            total = int(x.sum(dtype=np.int64))
            if how == "writes":
                x[:] = 1
                total = int(x.sum(dtype=np.int64))
            with open("/proc/self/maps") as maps:
                mapped = sum("memfd:client" in line for line in maps)
            out = np.array([total, mapped, x.base.__class__.__name__ != "mmap"])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses
"""


class Client:
    """A region of a client: a separate file."""

    def __init__(self, size: int = SIZE) -> None:
        self.fd = os.memfd_create("client")
        os.truncate(self.fd, size)
        self.bytes = np.ndarray((size,), np.uint8, mmap.mmap(self.fd, size))
        self.bytes[:] = 2

    def read_only(self) -> int:
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY)


@pytest.fixture
def client() -> Iterator[Client]:
    it = Client()
    yield it
    os.close(it.fd)


@pytest.fixture
def stub(start: Start, client: Client) -> Supervisor:
    """A stub that has mapped the client's file as region 1."""
    it = start(
        "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:" + SUMS
    )
    fd = client.read_only()
    assert it.map_region(1, fd, SIZE) == 0
    os.close(fd)
    return it


def ask(stub: Supervisor, how: str = "", offset: int = 0, size: int = SIZE) -> tuple[int, int, bool]:
    """The model's view: the sum, the number of mappings of the file, and whether it has a copy."""
    result = stub.execute(Request(1, [("IN", InRegion(1, offset, UINT8, (size,), size))], id=how))
    assert not result.text, result.text
    total, mapped, copied = result.responses[0]["OUT"].tolist()
    return total, mapped, bool(copied)


class TestMapping:
    def test_inputs_are_views(self, stub: Supervisor, client: Client) -> None:
        assert ask(stub) == (2 * SIZE, 1, False)
        client.bytes[:] = 3
        assert ask(stub) == (3 * SIZE, 1, False)
        assert ask(stub, offset=PAGE + 7, size=65536) == (3 * 65536, 1, False)
        assert not stub.loans

    def test_small_inputs_are_copied(self, stub: Supervisor) -> None:
        result = stub.execute(Request(1, [("IN", InRegion(1, 5, UINT8, (100,), 100))]))
        assert result.responses[0]["OUT"].tolist()[0] == 200 and not stub.loans

    def test_a_region_begins_anywhere_in_its_file(self, stub: Supervisor, client: Client) -> None:
        client.bytes[:PAGE] = 9
        assert stub.map_region(2, client.fd, SIZE - PAGE, PAGE) == 0
        request = Request(1, [("IN", InRegion(2, 0, UINT8, (SIZE - PAGE,), SIZE - PAGE))])
        assert stub.execute(request).responses[0]["OUT"].tolist()[0] == 2 * (SIZE - PAGE)

    def test_identity_sends_a_copy(self, start: Start, client: Client) -> None:
        stub = start(IDENTITY)
        assert stub.map_region(1, client.fd, SIZE) == 0
        (response,) = stub.execute(Request(1, [("IN", InRegion(1, 0, UINT8, (SIZE,), SIZE))])).responses
        assert [output.region for output in response.outputs] == [2]
        np.testing.assert_array_equal(response["OUT"], client.bytes)
        assert not stub.loans

    def test_an_input_that_is_passed_on_as_it_came(self, start: Start, client: Client) -> None:
        stub = start(model("""
            return [pb_utils.InferenceResponse([requests[0].inputs()[0]])]
        """), outputs=["IN"])  # fmt: skip
        assert stub.map_region(1, client.fd, SIZE) == 0
        (response,) = stub.execute(Request(1, [("IN", InRegion(1, 0, UINT8, (SIZE,), SIZE))])).responses
        assert [output.region for output in response.outputs] == [2]
        np.testing.assert_array_equal(response["IN"], client.bytes)

    def test_unmapped_and_mapped_again(self, stub: Supervisor, client: Client) -> None:
        ask(stub)
        assert stub.unmap_region(1) == 2
        assert stub.unmap_region(1) == 2  # also of an unknown one
        with pytest.raises(AssertionError, match="not mapped"):
            ask(stub)
        assert stub.map_region(2, client.fd, SIZE) == 0
        request = Request(1, [("IN", InRegion(2, 0, UINT8, (SIZE,), SIZE))])
        assert stub.execute(request).responses[0]["OUT"].tolist() == [2 * SIZE, 1, False]

    def test_nothing_stays_open(self, stub: Supervisor, client: Client) -> None:
        def count() -> int:
            folder = Path(f"/proc/{stub.pid}/fd")
            return sum("memfd:client" in os.readlink(link) for link in folder.iterdir())

        for number in range(2, 50):
            assert stub.map_region(number, client.fd, SIZE) == 0
            assert stub.unmap_region(number) == 2
        assert stub.map_region(50, client.fd, SIZE + 1) == 1
        assert stub.unmap_region(1) == 2
        assert count() == 0


class TestRefused:
    def test_invalid_regions_are_rejected(self, stub: Supervisor, client: Client) -> None:
        assert stub.map_region(2, client.fd, SIZE + 1) == 1  # the file is shorter
        assert stub.map_region(3, client.fd, PAGE, 7) == 1  # not aligned to a page
        assert stub.map_region(4, client.fd, 0) == 1
        assert stub.map_region(5, client.fd, 1 << 63, 1 << 63) == 1
        assert stub.map_region(6, client.fd, SIZE, hand=False) == 1  # no descriptor was sent
        null = os.open(os.devnull, os.O_RDONLY)
        assert stub.map_region(7, null, SIZE) == 1
        os.close(null)
        assert ask(stub) == (2 * SIZE, 1, False)

    def test_a_descriptor_without_its_map_is_passed_over(self, stub: Supervisor, client: Client) -> None:
        null = os.open(os.devnull, os.O_RDONLY)
        stub.socket.sendmsg([b"\2\0\0\0"], [(1, 1, null.to_bytes(4, "little"))])
        os.close(null)
        assert stub.map_region(3, client.fd, SIZE) == 0

    @pytest.mark.parametrize(
        "at", [(1, SIZE, 1), (1, 1, SIZE), (1, 1 << 63, 1 << 63), (1, 0, SIZE + 1), (2, 0, SIZE), (1, 0, 0)]
    )
    def test_bytes_out_of_bounds(self, stub: Supervisor, at: tuple[int, int, int]) -> None:
        number, offset, size = at
        good = ("IN", InRegion(1, 0, UINT8, (SIZE,), SIZE))
        bad = ("IN", InRegion(number, offset, UINT8, (4,), size))
        result = stub.execute(Request(1, [good]), Request(2, [bad]))
        assert result.status == 1 and "of region" in result.text
        eventually(stub, lambda: not stub.loans)
        assert ask(stub)[0] == 2 * SIZE


class TestOtherBytes:
    """Writes of the model, tensors that it keeps, and writes of the client."""

    def test_writes_of_the_model_are_private(self, stub: Supervisor, client: Client) -> None:
        assert ask(stub, "writes") == (SIZE, 1, False)
        assert (client.bytes == 2).all()
        assert ask(stub) == (2 * SIZE, 1, True)  # copied, because it may write again
        for _ in range(70):
            assert ask(stub)[0] == 2 * SIZE
        assert ask(stub) == (2 * SIZE, 1, False)

    @pytest.mark.parametrize("how", ["keeps", "keeps the request"])
    def test_kept_inputs_do_not_change(self, stub: Supervisor, client: Client, how: str) -> None:
        ask(stub, how)
        assert not stub.loans  # the client has its bytes back
        client.bytes[:] = 5
        assert ask(stub, "asks for kept")[0] == 2 * SIZE
        assert ask(stub)[0] == 5 * SIZE
        ask(stub, "lets go")
        assert ask(stub)[0] == 5 * SIZE

    def test_two_requests_with_the_same_bytes(self, start: Start, client: Client) -> None:
        stub = start(model("""
            arrays = [r.inputs()[0].as_numpy() for r in requests]
            arrays[0][:] = 7
            return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', x[:3])]) for x in arrays]
        """))  # fmt: skip
        assert stub.map_region(1, client.fd, SIZE) == 0
        at = [(0, SIZE), (100, 65536)]
        requests = [Request(i, [("IN", InRegion(1, o, UINT8, (n,), n))]) for i, (o, n) in enumerate(at, 1)]
        first, second = stub.execute(*requests).responses
        assert first["OUT"].tolist() == [7, 7, 7] and second["OUT"].tolist() == [2, 2, 2]
        assert not stub.loans

    def test_a_truncated_file_ends_the_stub(self, stub: Supervisor, client: Client) -> None:
        os.truncate(client.fd, PAGE)
        with pytest.raises(StubDied):
            ask(stub)
        assert stub.wait_exit() == -signal.SIGBUS

    def test_a_truncated_file_is_an_error_where_it_is_copied(self, stub: Supervisor, client: Client) -> None:
        ask(stub, "writes")
        os.truncate(client.fd, PAGE)
        result = stub.execute(Request(1, [("IN", InRegion(1, 0, UINT8, (SIZE,), SIZE))]))
        assert "the client has truncated the region of shared memory" in result.text
        os.truncate(client.fd, SIZE)
        assert ask(stub)[0] == 2 * PAGE


def test_a_closed_socket_only_costs_copies(start: Start, client: Client) -> None:
    stub = start(IDENTITY)
    stub.socket.close()
    stub.send("MAP", 1, struct.pack("<QQQ", 0, SIZE, 0))
    assert stub.mapped(1) == 1
    assert fcntl.fcntl(client.fd, fcntl.F_GETFD) >= 0
    x = np.arange(5)
    assert stub.execute(Request(1, [("IN", x)])).responses[0]["OUT"].tolist() == x.tolist()
