"""Shared by tests of device memory: the head of their models, and a process that lends memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakecuda
import numpy as np
from frames import InDevice, Lent, Request

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

#: Counters of the fake driver for mistakes, which must stay 0.
MISTAKES = (
    "double_free", "double_close", "freed_while_open", "wrong_context", "without_context", "out_of_bounds", "after_fork",
)  # fmt: skip

#: The start of the error text for memory that could not be opened.
CANNOT_OPEN = "Failed to open the cudaIpcHandle. error: "

SOME = np.arange(5000, dtype=np.float32)


def may_stay(*arrays: np.ndarray) -> list[Request]:
    return [Request(number + 1, [("IN", array)], stays=[]) for number, array in enumerate(arrays)]


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
