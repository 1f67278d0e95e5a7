"""PreferredMemory, MemoryType, SharedMemory and other small classes."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import re
from typing import Any

import c_python_backend_utils as c
import pytest
import triton_python_backend_utils as pb_utils


class TestMemoryType:
    def test_members(self) -> None:
        gpu, cpu = pb_utils.TRITONSERVER_MEMORY_GPU, pb_utils.TRITONSERVER_MEMORY_CPU
        assert [gpu.value, cpu.value] == [0, 1] and [int(gpu), int(cpu)] == [0, 1]
        assert repr(gpu) == "<MemoryType.TRITONSERVER_MEMORY_GPU: 0>" and str(cpu) == "MemoryType.TRITONSERVER_MEMORY_CPU"
        assert c.TRITONSERVER_MEMORY_CPU is cpu and vars(c.MemoryType)["TRITONSERVER_MEMORY_CPU"] is cpu
        assert list(c.MemoryType.__members__) == ["TRITONSERVER_MEMORY_GPU", "TRITONSERVER_MEMORY_CPU"]

    @pytest.mark.parametrize("member", [c.TRITONSERVER_MEMORY_GPU, c.TRITONSERVER_MEMORY_CPU, pb_utils.TritonError.CANCELLED])
    def test_members_travel(self, member: Any) -> None:
        for twin in (copy.copy(member), copy.deepcopy(member), pickle.loads(pickle.dumps(member))):
            assert twin == member and type(twin) is type(member)


class TestPreferredMemory:
    @pytest.mark.parametrize("args", [(c.TRITONSERVER_MEMORY_CPU,), (c.TRITONSERVER_MEMORY_GPU, 2), (c.MemoryType(5), -1)])
    def test_made(self, args: Any) -> None:
        memory = c.PreferredMemory(*args)
        assert repr(memory).startswith("<c_python_backend_utils.PreferredMemory object at 0x")
        request = pb_utils.InferenceRequest(
            inputs=[], requested_output_names=[], model_name="m", preferred_memory=memory
        )
        assert request._preferred_memory is memory

    def test_by_name(self) -> None:
        memory = c.PreferredMemory(preferred_memory_type=c.TRITONSERVER_MEMORY_GPU, preferred_device_id=3)
        assert (memory._kind, memory._device) == (0, 3)

    @pytest.mark.parametrize(
        "args", [(), (1,), (None,), (c.TRITONSERVER_MEMORY_CPU, "a"), (c.TRITONSERVER_MEMORY_CPU, None), (c.TRITONSERVER_MEMORY_CPU, 2**63)]
    )
    def test_refused(self, args: Any) -> None:
        with pytest.raises(TypeError) as raised:
            c.PreferredMemory(*args)
        assert str(raised.value) == (
            "__init__(): incompatible constructor arguments. The following argument types are supported:\n    1. "
            "c_python_backend_utils.PreferredMemory(preferred_memory_type: triton::backend::python::PreferredMemory::"
            f"MemoryType, preferred_device_id: int = 0)\n\nInvoked with: {', '.join(map(repr, args))}"
        )


def test_shared_memory() -> None:
    assert c.shared_memory.free_memory() == 0 and isinstance(c.shared_memory, c.SharedMemory)
    with pytest.raises(TypeError, match=r"^c_python_backend_utils\.SharedMemory: No constructor defined!$"):
        c.SharedMemory()


class TestFutures:
    def test_failure_is_logged(self, capfd: pytest.CaptureFixture[str]) -> None:
        failed: concurrent.futures.Future[None] = concurrent.futures.Future()
        failed.set_exception(ValueError("boo"))
        c.async_event_future_done_callback(failed)
        assert re.match(r"E.* futures\.py:\d+\]  ValueError: boo\n", capfd.readouterr().err)

    def test_success_is_not(self, capfd: pytest.CaptureFixture[str]) -> None:
        done: concurrent.futures.Future[int] = concurrent.futures.Future()
        done.set_result(3)
        c.async_event_future_done_callback(py_future=done)
        assert capfd.readouterr().err == ""

    def test_never_fails(self, capfd: pytest.CaptureFixture[str]) -> None:
        cancelled: concurrent.futures.Future[int] = concurrent.futures.Future()
        cancelled.cancel()
        c.async_event_future_done_callback(cancelled)
        assert "CancelledError" in capfd.readouterr().err
        c.async_event_future_done_callback(3)
        assert "'int' object has no attribute 'exception'" in capfd.readouterr().err

    def test_arguments(self) -> None:
        with pytest.raises(TypeError, match=r"async_event_future_done_callback\(\): incompatible function arguments"):
            c.async_event_future_done_callback()
