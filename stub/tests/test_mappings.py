"""The mapped parts of shared files, and limits on memory."""

from __future__ import annotations

import time
from typing import Any, Callable

import numpy as np
from conftest import Start
from frames import Request
from pb_stub.mappings import CELL
from supervisor import Supervisor

from models import model

LIMITED = """
import resource
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        assert used < 4 << 30, used
        resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))

    def execute(self, requests):
        x = requests[0].inputs()[0].as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.repeat(x, int(x[0])))])]
"""


class TestALimitOnAddressSpace:
    def test_mappings_leave_address_space_for_outputs(self, start: Start) -> None:
        stub = start(LIMITED)
        for times in (1, 8):
            array = np.full(1 << 20, times)
            (response,) = stub.execute(Request(1, [("IN", array)])).responses
            np.testing.assert_array_equal(response["OUT"], np.repeat(array, times))
            for output in response.outputs:
                if output.region == 2:
                    stub.give_back(output.ticket)

    def test_is_named_where_it_is_met(self, start: Start) -> None:
        stub = start(LIMITED.replace("400 << 20", "330 << 20"))
        text = ""
        for times in (16, 30):
            text += stub.execute(Request(1, [("IN", np.full(1 << 20, times))])).text
        assert "RLIMIT_AS is " in text or "MemoryError" in text
        assert stub.execute(Request(1, [("IN", np.full(10, 1))])).status == 0
        began = time.monotonic()
        stub.finalize()
        assert stub.wait_exit() == 0
        assert time.monotonic() - began < 15

    def test_is_named_by_a_model_that_does_not_start(self, fail: Callable[..., tuple[str, Supervisor]]) -> None:
        text, _ = fail("""
            import resource
            class TritonPythonModel:
                def initialize(self, args):
                    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
                    bytearray(8 << 30)
        """)
        assert text.startswith("MemoryError") and " (RLIMIT_AS is 1073741824 bytes, " in text and "are in use)" in text


WRITES = model("""
    x = requests[0].inputs()[0].as_numpy()
    seen = int(x.sum())
    x += 1
    return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([seen, int(x.sum())]))])]
""")


def test_blocks_everywhere(start: Start) -> None:
    """Blocks across any cells are read and written, and the next one there is clean."""
    stub = start(WRITES)
    for count in (100_000, CELL // 8, CELL // 8 + 1):
        last = (1 << 35) - (8 * count + 4095) // 4096 * 4096
        for offset in (0, CELL - 4096, 3 * CELL - 8192, 5 * CELL, last):
            for value in (1, 2):
                stub.next_block = offset
                result: Any = stub.execute(Request(1, [("IN", np.full(count, value))]))
                assert result.responses[0]["OUT"].tolist() == [value * count, (value + 1) * count]
    assert not stub.loans
