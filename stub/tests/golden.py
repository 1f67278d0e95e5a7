"""The frames of ipc/testdata that the stub encodes.

As a program, rewrites them; Go's tests decode them.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np

HERE = Path(__file__).resolve().parent
TESTDATA = HERE.parent.parent / "ipc" / "testdata"
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "pyutils")]

from c_python_backend_utils.memory import TRITONSERVER_MEMORY_CPU, PreferredMemory  # noqa: E402  # only now found
from c_python_backend_utils.request import InferenceRequest, trace_of  # noqa: E402
from c_python_backend_utils.response import InferenceResponse  # noqa: E402
from c_python_backend_utils.tensor import Tensor  # noqa: E402
from pb_stub import layout, messages  # noqa: E402
from pb_stub.batch import Answers, Reader  # noqa: E402
from pb_stub.inferences import Inferences  # noqa: E402
from pb_stub.loans import Loan  # noqa: E402
from pb_stub.mappings import FileMapping  # noqa: E402
from pb_stub.names import Names  # noqa: E402
from pb_stub.outgoing import Outgoing  # noqa: E402
from pb_stub.places import Places  # noqa: E402
from pb_stub.pool import Block  # noqa: E402
from pb_stub.regions import Regions  # noqa: E402
from pb_stub.spin import Spin  # noqa: E402

LIFE = 7
WANTED = {"OUT0": 1, "OUT1": 2, "OUT2": 3, "OUT3": 4}


class Stand:
    """Replaces the channel, the loans and the pool, of which only numbers are needed."""

    life = LIFE
    foreign = False
    executing = False
    spin = Spin(0)

    def __init__(self) -> None:
        self.channel = self
        self.window = FileMapping(0, mmap.mmap(-1, 0x30000 + 8192))
        self.tickets = [5 | 1 << 32, 6 | 2 << 32]
        self.dropped: Any = []

    def take_tickets(self) -> list[int]:
        return self.tickets

    def collect_tickets(self, let_go: Callable[[], object]) -> list[int]:
        let_go()
        return self.tickets

    def give_back(self, ticket: int) -> None:
        pass

    def take(self, size: int) -> Block:
        return Block(3, 0x30000, size, self.window, self.dropped)

    def lend(self, block: Block) -> int:
        return block.index | 9 << 32

    def holder(self, _array: np.ndarray) -> None:
        return None


def executed() -> bytes:
    """A batch of three: outputs of every kind, an error, and a response with only parameters."""
    stand: Any = Stand()
    passed = Tensor.__new__(Tensor)
    passed._name, passed._code, passed._shape = "OUT2", 2, (2, 4096)
    passed._origin, passed._offset, passed._size = Loan(stand, 4 | 3 << 32, 0x5000, 8192), 0, 8192
    passed._array = passed._data = passed._sent = None
    passed._element = 0
    answers = Answers(stand, stand, stand)
    answers.response(
        1 << 32,
        InferenceResponse(
            [
                Tensor("OUT0", np.array([[1, 2, 3]], np.float32)),
                Tensor("OUT1", np.full(5000, 7, np.uint8)),
                passed,
                Tensor("OUT3", np.array([b"ab", b"cd"], np.object_)),
                Tensor("OUT0", np.array(5, np.int64)),
            ]
        ),
        WANTED,
    )
    answers.error(1 << 32 | 1, 2, "nöt found")
    answers.response(1 << 32 | 2, InferenceResponse([], parameters={"a": 1, "b": "x"}), WANTED)
    return answers.pack(1, 1000, 2000)


def response() -> bytes:
    """A response of a decoupled model with one small output."""
    stand: Any = Stand()
    stand.tickets = [8 | 1 << 32]
    answers = Answers(stand, stand, stand)
    answers.response(1 << 32, InferenceResponse([Tensor("OUT0", np.array([-1], np.int32))]), WANTED)
    return answers.pack_response(1 << 32)


def placed() -> bytes:
    """An output that was copied to its place on a device, and another one in the frame."""
    stand: Any = Stand()

    class Target:
        region, size = layout.REGION_DEVICE_PLACE, 1 << 20

        def least(self, _data: Any) -> int:
            return 1

        def put(self, _tensor: Tensor, _offset: int, _size: int, _inputs: Any) -> bool:
            return True

    inputs: Any = Regions(stand, None, -1)
    target: Any = Target()
    wanted = Places(WANTED, 1 << 32, inputs)
    wanted.add("OUT1", target, 6, 256, 80_000)
    answers = Answers(stand, stand, stand)
    outputs = [Tensor("OUT0", np.array([7], np.int32)), Tensor("OUT1", np.zeros((2, 10_000), np.float32))]
    answers.response(1 << 32, InferenceResponse(outputs), wanted)
    return answers.pack(4, 1000, 2000)


def infer() -> bytes:
    """A BLS request: inputs of every kind, all strings, one requested output."""
    stand: Any = Stand()
    names: Any = Names(stand, ["IN0", "OUT0", "OUT1", "OUT2", "OUT3"], 1, 4)
    inferences = Inferences(stand, stand, stand, "m_0_0")
    inferences.settle(stand, names, Reader(names, stand), "m", 1)
    inferences.batch = 5
    passed = Tensor.__new__(Tensor)
    passed._name, passed._code, passed._shape = "IN0", 2, (2, 4096)
    passed._origin, passed._offset, passed._size = Loan(stand, 4 | 3 << 32, 0x5000, 8192), 0, 8192
    passed._array = passed._data = passed._sent = None
    passed._element = 0
    request = InferenceRequest(
        request_id="ürgent",
        correlation_id="seq",
        inputs=[
            Tensor("OUT0", np.array([[1, 2, 3]], np.float32)),
            Tensor("OUT1", np.full(5000, 7, np.uint8)),
            passed,
            Tensor("OUT3", np.array([b"ab", b"cd"], np.object_)),
        ],
        requested_output_names=["OUT2"],
        model_name="modèle",
        model_version=3,
        flags=0x80010003,
        timeout=11000000000,
        preferred_memory=PreferredMemory(TRITONSERVER_MEMORY_CPU),
        trace=trace_of('{"traceparent":"00"}'),
        parameters={"a": 1},
    )
    outgoing = Outgoing(stand, stand, stand)
    return inferences.pack(9, outgoing, request, True)


def frames() -> dict[str, bytes]:
    """Return all frames, by file name."""
    return {
        "hello": messages.hello(LIFE, 4711, "3.11.7", "1.26.4", "/usr/bin/python3", "/usr"),
        "initialized": messages.initialized(LIFE, "", True),
        "initialized_error": messages.initialized(LIFE, "ValueError: wörk\n\nAt:\n  model.py(1): <module>\n", False),
        "completed": messages.completed(LIFE, "", '{"name": "mod\\u00e8le"}'),
        "completed_error": messages.completed(LIFE, "ValueError: wörk", ""),
        "ready": messages.ready(LIFE, 9, True, ""),
        "ready_error": messages.ready(LIFE, 10, False, "ValueError: wörk"),
        "executed": executed(),
        "executed_device_place": placed(),
        "executed_failed": messages.executed_failed(LIFE, 2, 1000, 2000, [5 | 1 << 32], "ValueError: wörk".encode()),
        "executed_skipped": messages.executed_skipped(LIFE, 3),
        "finalized": messages.finalized(LIFE, "ValueError: late"),
        "response": response(),
        "response_final": messages.final(LIFE, 1 << 32 | 1),
        "infer": infer(),
        "demand": messages.word(messages.DEMAND, LIFE, 9, 16),
        "stop_infer": messages.word(messages.STOP_INFER, LIFE, 9, messages.STOP_FORGET),
        "mapped": messages.word(messages.MAPPED, LIFE, 3, messages.MAP_REFUSED),
        "lend": messages.lend(LIFE, 2, messages.Allocation(1, 64 << 20, bytes(range(16)), bytes(range(100, 164)))),
        "unlend": messages.encode(messages.UNLEND, LIFE, 2, b""),
        "released": messages.released(LIFE, [1, 2 | 1 << 32]),
        "log": messages.log(LIFE, 1, "model.py", 300, "wörk"),
        "call_load": messages.call(
            LIFE, 1, "load", model="mödel", config='{"max_batch_size":4}', files={"file:1/x": b"\0\1"}
        ),
        "call_unload": messages.call(LIFE, 2, "unload", model="m", dependents=True),
        "call_ready": messages.call(LIFE, 3, "ready", model="m", version="1"),
        "call_new_family": messages.call(LIFE, 4, "new_family", family=1, name="f", description="wörds", kind=2),
        "call_new_metric": messages.call(
            LIFE, 5, "new_metric", family=1, metric=300, labels=[("a", "ä"), ("b", "")], buckets=[0.5, 1.0]
        ),
        "call_value": messages.call(LIFE, 6, "value", metric=300),
        "call_drop_family": messages.call(LIFE, 0, "drop_family", family=1),
        "call_imported": messages.call(LIFE, 0, "imported", paths=["/srv/hëlper.py", "/srv/pkg/__init__.py"]),
        "metric": messages.metric(LIFE, 300, 1, -0.5),
        "name_up": messages.name(LIFE, 5, "ÄUSSERST"),
        "spilled_up": messages.encode(
            messages.EXECUTED, LIFE, 3, messages.spilled_body(2, 0x30000, 40000, 1 | 2 << 32), messages.SPILLED
        ),
    }


if __name__ == "__main__":
    for name, frame in frames().items():
        (TESTDATA / f"{name}.bin").write_bytes(frame)
