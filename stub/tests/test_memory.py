"""Blocks in both directions: loans of requests, the arena of outputs, and their return."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

import numpy as np
import pytest
from conftest import Start
from frames import Request
from pb_stub.pool import size_class
from supervisor import Supervisor

from models import BATCH_ERROR, IDENTITY, model

BIG = 100000  # elements of 8 bytes: too large for one copy


def eventually(stub: Supervisor, ok: Callable[[], bool]) -> None:
    """Read frames until ok returns true; only frames that `receive` keeps to itself arrive."""
    deadline = time.monotonic() + 20
    while not ok():
        assert time.monotonic() < deadline
        with contextlib.suppress(TimeoutError):
            stub.receive(0.05)


class TestLoans:
    def test_unchanged_input_is_referred_to(self, start: Start) -> None:
        stub = start(IDENTITY)
        (response,) = stub.execute(Request(1, [("IN", np.arange(BIG))])).responses
        assert [output.region for output in response.outputs] == [1]
        assert not stub.loans

    def test_copies_return_their_blocks_at_once(self, start: Start) -> None:
        stub = start(
            model("""
                kept = self.__dict__.setdefault("kept", [])
                kept.append(requests[0].inputs()[0])
                kept[0].as_numpy()[0] += len(kept) - 1  # only this tensor's bytes change
                return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.stack([t.as_numpy()[:2] for t in kept]))])]
            """)
        )
        stub.execute_flags = 1
        for n, want in enumerate(([[0, 1]], [[1, 1], [1, 2]], [[3, 1], [1, 2], [2, 3]])):
            (response,) = stub.execute(Request(n + 1, [("IN", np.arange(n, BIG))])).responses
            np.testing.assert_array_equal(response["OUT"], want)
            assert not stub.loans

    def test_parts_of_an_input(self, start: Start) -> None:
        stub = start(
            model("""
                x = requests[0].inputs()[0].as_numpy()
                return [pb_utils.InferenceResponse([
                    pb_utils.Tensor('A', x[1000:]), pb_utils.Tensor('B', x.reshape(2, -1)), pb_utils.Tensor('C', x[::2]),
                    pb_utils.Tensor('D', x.view(np.uint8)[8:90000]),
                ])]
            """),
            outputs=["A", "B", "C", "D"],
        )
        x = np.arange(BIG)
        (response,) = stub.execute(Request(1, [("IN", x)])).responses
        assert [output.region for output in response.outputs] == [1, 1, 2, 1]
        for name, want in (("A", x[1000:]), ("B", x.reshape(2, -1)), ("C", x[::2]), ("D", x.view(np.uint8)[8:90000])):
            np.testing.assert_array_equal(response[name], want)
        assert not stub.loans

    def test_a_modified_input_is_sent_and_stays_private(self, start: Start) -> None:
        stub = start(
            model("""
                x = requests[0].inputs()[0].as_numpy()
                x[5] += 100
                return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', x)])]
            """)
        )
        for _ in range(70):  # more often than it is copied after a write
            x = np.arange(BIG)
            offset = stub.next_block
            (response,) = stub.execute(Request(1, [("IN", x)])).responses
            np.testing.assert_array_equal(np.frombuffer(stub.requests[offset : offset + x.nbytes], np.int64), x)
            x[5] += 100
            np.testing.assert_array_equal(response["OUT"], x)
            stub.next_block = 0  # the same block again: its private pages must be gone
        assert not stub.loans

    def test_block_is_used_again_with_other_bytes(self, start: Start) -> None:
        """A page made private by the model would show old bytes."""
        stub = start(
            model("""
                x = requests[0].inputs()[0].as_numpy()
                out = pb_utils.Tensor('OUT', np.array([x.sum()]))
                if requests[0].request_id() == 'write':
                    x[:] = 7
                return [pb_utils.InferenceResponse([out])]
            """)
        )
        for number in range(200):
            stub.next_block = 0
            x = np.full(BIG, number)
            (response,) = stub.execute(Request(1, [("IN", x)], id="write" if number % 3 == 0 else "")).responses
            assert response["OUT"][0] == x.sum()

    def test_kept_arrays_keep_the_loan(self, start: Start) -> None:
        stub = start("""
            import numpy as np
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                kept = None
                def execute(self, requests):
                    before = -1 if self.kept is None else int(self.kept[0])
                    self.kept = None
                    if requests[0].request_id() == "keep":
                        self.kept = requests[0].inputs()[0].as_numpy()[10:20]
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([before]))])]
        """)
        x = np.arange(BIG)
        assert stub.execute(Request(1, [("IN", x)], id="keep")).responses[0]["OUT"].tolist() == [-1]
        assert len(stub.loans) == 1
        assert stub.execute(Request(2, [("IN", x)])).responses[0]["OUT"].tolist() == [10]
        assert not stub.loans

    def test_many_kept_arrays(self, start: Start) -> None:
        """Each keeps its own loan, and continues to show its bytes."""
        stub = start("""
            import numpy as np
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                kept = []
                def execute(self, requests):
                    if requests[0].request_id() == "forget":
                        del self.kept[::2]
                    for request in requests:
                        self.kept.append(request.inputs()[0].as_numpy()[5:])
                    sums = np.array([int(x[0]) for x in self.kept])
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", sums)])] * len(requests)
        """)
        for number in range(10):
            batch = [Request(n, [("IN", np.full(BIG, 3 * number + n))]) for n in range(3)]
            (response, *_) = stub.execute(*batch).responses
            assert response["OUT"].tolist() == list(range(3 * number + 3))
        assert len(stub.loans) == 30
        (response,) = stub.execute(Request(1, [("IN", np.full(BIG, 30))], id="forget")).responses
        assert response["OUT"].tolist() == [*range(1, 30, 2), 30]
        assert len(stub.loans) == 16

    def test_loan_that_ends_between_batches(self, start: Start) -> None:
        stub = start("""
            import threading
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def execute(self, requests):
                    kept = [requests[0].inputs()[0].as_numpy()]
                    threading.Timer(0.05, kept.clear).start()
                    return [pb_utils.InferenceResponse([])]
        """)
        stub.execute(Request(1, [("IN", np.arange(BIG))]))
        eventually(stub, lambda: not stub.loans)
        assert len(stub.released) == 1

    def test_tensors_that_nobody_looks_at(self, start: Start) -> None:
        stub = start(model("return [pb_utils.InferenceResponse([])]"))
        stub.execute(Request(1, [(name, np.arange(BIG)) for name in "ABC"]))
        assert not stub.loans

    def test_dlpack_of_a_loan(self, start: Start) -> None:
        stub = start(
            model("""
                x = requests[0].inputs()[0]
                y = pb_utils.Tensor.from_dlpack('OUT', x)
                return [pb_utils.InferenceResponse([y])]
            """)
        )
        x = np.arange(BIG)
        np.testing.assert_array_equal(stub.execute(Request(1, [("IN", x)])).responses[0]["OUT"], x)
        stub.execute(Request(1))
        eventually(stub, lambda: not stub.loans)

    def test_tensors_side_by_side_in_one_block(self, start: Start) -> None:
        """The page shared by two of them is released with the last one."""
        stub = start(
            model("""
                a, b = (t.as_numpy() for t in requests[0].inputs())
                a[:] = 1
                b[:] = 2
                del a
                return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', b)])]
            """)
        )
        data = np.arange(2 * BIG)
        stub.requests[: data.nbytes] = data.tobytes()
        half = data.nbytes // 2
        original = stub.lend

        patched: Any = stub
        patched.lend = lambda raw: original(raw, half * (len(stub.loans) % 2))
        for _ in range(3):
            (response,) = stub.execute(Request(1, [("A", data[:BIG]), ("B", data[BIG:])])).responses
            assert set(response["OUT"].tolist()) == {2}
            assert not stub.loans
            np.testing.assert_array_equal(np.frombuffer(stub.requests[: data.nbytes], np.int64), data)


class TestArena:
    COPY = model(
        "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', requests[0].inputs()[0].as_numpy().copy())])]"
    )

    def give_all_back(self, stub: Supervisor) -> None:
        for ticket, count in list(stub.kept.items()):
            for _ in range(count):
                stub.give_back(ticket)
        stub.kept.clear()

    def test_blocks_are_used_again(self, start: Start) -> None:
        stub = start(self.COPY)
        offsets = set()
        for _ in range(50):
            (response,) = stub.execute(Request(1, [("IN", np.arange(BIG))])).responses
            offsets.add(response.outputs[0].ticket & 0xFFFFFFFF)
            self.give_all_back(stub)
        assert len(offsets) <= 2

    def test_blocks_that_are_out_are_left_alone(self, start: Start) -> None:
        stub = start(self.COPY)
        regions = []
        for number in range(20):
            (response,) = stub.execute(Request(1, [("IN", np.full(BIG, number))])).responses
            regions.append(response.outputs[0])
        assert len({output.ticket for output in regions}) == 20
        assert all((output.array() == number).all() for number, output in enumerate(regions))

    def test_quota_bounds_a_batch(self, start: Start) -> None:
        """An output that does not fit fails its batch; returned blocks make room."""
        stub = start(self.COPY, max_bytes=4 << 20)
        big = np.zeros(3 << 20, np.uint8)
        assert stub.execute(Request(1, [("IN", big)])).status == 0
        answer = stub.execute(Request(2, [("IN", big)]))
        assert answer.status == 1
        assert answer.text.startswith(BATCH_ERROR + "Failed to increase the shared memory pool size to 6291456 bytes. ")
        assert answer.text.endswith(
            "Error: a tensor needs 3145728 bytes in one piece, others of this process use 3145728, and all together may "
            "use 4194304: the limit is shm-max-byte-size of --backend-config, or the model's share "
            "(--model-max-memory-share) of --request-memory-byte-size if that is less, and not --shm-size"
        )
        assert stub.execute(Request(3, [("IN", big[:5000])])).status == 0
        self.give_all_back(stub)
        assert stub.execute(Request(4, [("IN", big)])).status == 0
        assert (
            "Error: a tensor needs 8388608 bytes in one piece"
            in stub.execute(Request(5, [("IN", np.zeros(8 << 20, np.uint8))])).text
        )

    def test_free_memory(self, start: Start) -> None:
        """A model sees the memory of its tensors, and that all of it is returned."""
        stub = start(
            model("""
                import c_python_backend_utils as c

                free = pb_utils.Tensor("FREE", np.array(c.shared_memory.free_memory()))
                if requests[0].request_id() == "drop":
                    self.kept = None
                    return [pb_utils.InferenceResponse([free])]
                if requests[0].request_id() == "keep":
                    self.kept = pb_utils.Tensor("BIG", np.arange(100000))
                    return [pb_utils.InferenceResponse([free, self.kept])]
                return [pb_utils.InferenceResponse([free])]
            """)
        )
        free = []
        for ident in ("keep", "", "drop", ""):
            (response,) = stub.execute(Request(1, [], ["FREE", "BIG"], id=ident)).responses
            free.append(int(response["FREE"]))
            self.give_all_back(stub)
        assert free[0] - free[1] >= 800000
        assert free[2] == free[1] and free[3] == free[0]

    def test_sizes_change(self, start: Start) -> None:
        """Free blocks of other sizes are released for a needed one."""
        stub = start(self.COPY, max_bytes=8 << 20)
        for size in (1 << 20, 6 << 20, 5000, 3 << 20, 7 << 20, 100000, 7 << 20):
            array = np.arange(size, dtype=np.uint32).astype(np.uint8)
            (response,) = stub.execute(Request(1, [("IN", array)])).responses
            np.testing.assert_array_equal(response["OUT"], array)
            self.give_all_back(stub)

    def test_small_file_is_cut_anew(self, root: Any, tmp_path: Any) -> None:
        import textwrap

        import supervisor

        path = supervisor.model(tmp_path, textwrap.dedent(self.COPY))
        with Supervisor(root, up_size=8 << 20) as stub:
            stub.hello()
            assert stub.initialize(path, max_bytes=0)["error"] == ""
            rng = np.random.default_rng(1)
            for _ in range(100):
                size = int(rng.integers(5000, 6 << 20))
                array = np.full(size, size % 251, np.uint8)
                answer = stub.execute(Request(1, [("IN", array)]))
                assert answer.status == 0, answer.text
                np.testing.assert_array_equal(answer.responses[0]["OUT"], array)
                self.give_all_back(stub)

    def test_memory_goes_back_when_idle(self, start: Start) -> None:
        import os

        stub = start(self.COPY, default_bytes=1 << 20)
        stub.execute(Request(1, [("IN", np.zeros(50 << 20, np.uint8))]))
        assert os.fstat(stub.up_fd).st_blocks * 512 > 50 << 20
        self.give_all_back(stub)
        deadline = time.monotonic() + 20
        while os.fstat(stub.up_fd).st_blocks * 512 > 2 << 20:
            assert time.monotonic() < deadline, os.fstat(stub.up_fd).st_blocks * 512
            stub.execute(Request(1, [("IN", np.zeros(1, np.uint8))]))
            time.sleep(0.1)

    def test_more_blocks_out_than_may_be(self, start: Start) -> None:
        stub = start(
            model("""
                t = [pb_utils.Tensor('OUT', np.zeros(2000)) for _ in range(1000)]
                return [pb_utils.InferenceResponse(t)]
            """)
        )
        statuses = [stub.execute(Request(n)).status for n in range(6)]
        assert statuses == [0, 0, 0, 0, 1, 1]
        self.give_all_back(stub)
        assert stub.execute(Request(9)).status == 0

    def test_batch_that_fails_keeps_nothing(self, start: Start) -> None:
        stub = start(
            model("return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1 << 17))])]"),
            max_bytes=4 << 20,
        )
        for _ in range(20):
            text = stub.execute(Request(1), Request(2)).text
            assert "Number of InferenceResponse objects do not match" in text

    def test_long_frames(self, start: Start) -> None:
        """Many small outputs: blocks hold what exceeds a frame, and a long frame is spilled."""
        stub = start(
            model("return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.full(8, i)) for i in range(900)])]")
        )
        (response,) = stub.execute(Request(1)).responses
        assert [int(output.array()[0]) for output in response.outputs] == list(range(900))
        assert {output.region for output in response.outputs} == {0, 2}


@pytest.mark.parametrize(
    ("size", "want"),
    [(0, 1), (1, 1), (4096, 1), (4097, 2), (8 * 4096, 8), (8 * 4096 + 1, 10), (10 * 4096, 10), (16 * 4096 + 1, 20)],
)
def test_size_classes(size: int, want: int) -> None:
    assert size_class(size) == want * 4096


def test_size_classes_waste_little() -> None:
    for pages in range(9, 5000):
        assert pages <= size_class(pages * 4096) // 4096 <= pages * 1.25
