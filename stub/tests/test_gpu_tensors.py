"""Tensors on a CUDA device from libraries, on this machine's device: `make test-gpu`.

test_cuda.py tests everything that requires the fake driver's faults and counts.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any, Callable

import numpy as np
import producer
import pytest
from c_python_backend_utils import cuda
from producer import Bare, Older, OnDevice
from triton_python_backend_utils import Tensor, TritonModelException

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise jax takes most of the device

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True)
def device() -> cuda.Device:
    try:
        return cuda.device(0)
    except cuda.CudaError as error:
        pytest.skip(f"no CUDA device: {error}")


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return module


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture
def jax() -> Any:
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("jax finds no CUDA device")
    return module


def bytes_of(tensor: Tensor) -> bytes:
    """Return the bytes that would be sent for a tensor on a device."""
    data: Any = tensor._data
    return bytes(data.read())


def ended(watched: Callable[[], Any]) -> bool:
    gc.collect()
    return watched() is None


class TestOwnProducer:
    @pytest.mark.parametrize("kind", [OnDevice, Older, Bare])
    @pytest.mark.parametrize("size", [1, 4096, 1 << 22])
    def test_there_and_back(self, kind: type[OnDevice], size: int) -> None:
        array = np.random.default_rng(1).integers(0, 256, size, np.uint8)
        made = kind(array, stream=producer.new_stream(), versioned=True)
        tensor = Tensor.from_dlpack("X", made)
        assert not tensor.is_cpu() and tensor.__dlpack_device__() == (2, 0)
        assert bytes_of(tensor) == array.tobytes()
        again = Tensor.from_dlpack("Y", tensor.to_dlpack())
        assert bytes_of(again) == array.tobytes()
        del tensor
        assert made.deleted == 0
        del again
        gc.collect()
        assert made.deleted == 1 and made.capsules == 1

    def test_context_of_the_caller_stays(self) -> None:
        before = producer.current()
        tensor = Tensor.from_dlpack("X", OnDevice(np.arange(5.0)))
        bytes_of(tensor)
        assert producer.current() == before
        with producer.Context(0):
            within = producer.current()
            bytes_of(tensor)
            assert producer.current() == within != 0

    def test_as_numpy_copies(self) -> None:
        tensor = Tensor.from_dlpack("X", OnDevice(np.arange(5.0)))
        array = tensor.as_numpy()
        assert array.tolist() == [0, 1, 2, 3, 4] and array.flags.writeable
        assert tensor.as_numpy() is array and not tensor.is_cpu()

    def test_where_an_address_is(self, device: cuda.Device) -> None:
        made = OnDevice(np.zeros(3 << 20, np.uint8))
        found = device.range_of(made.address + 5)
        assert found.base <= made.address and made.address + (3 << 20) <= found.base + found.size
        assert (found.device, found.managed, found.exportable) == (0, False, True)
        made.free()

    def test_copies_on_the_device(self, device: cuda.Device) -> None:
        one, two = OnDevice(np.arange(1 << 20, dtype=np.uint32)), OnDevice(np.zeros(1 << 20, np.uint32))
        device.copy(two.address, one.address, 4 << 20)
        back = np.empty(1 << 20, np.uint32)
        device.copy_to_host(back.__array_interface__["data"][0], two.address, 4 << 20)
        assert (back == one.array).all()
        device.copy_from_host(one.address, np.zeros(1 << 20, np.uint32).__array_interface__["data"][0], 4 << 20)
        device.copy_to_host(back.__array_interface__["data"][0], one.address, 4 << 20)
        assert not back.any()
        one.free()
        two.free()

    def test_errors_of_the_driver_are_texts(self, device: cuda.Device) -> None:
        with pytest.raises(cuda.CudaError, match=r"^invalid argument$"):
            device.copy_to_host(np.zeros(8).__array_interface__["data"][0], 1, 8)

    def test_a_device_that_does_not_exist(self) -> None:
        made = OnDevice(np.arange(5.0))
        made.device = 77
        with pytest.raises(TritonModelException, match="when GPU is not available"):
            Tensor.from_dlpack("X", made)
        made.device = 0
        made.free()


class TestTorch:
    @pytest.mark.parametrize(
        "name", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
    )
    def test_every_type(self, torch: Any, name: str) -> None:
        there = (torch.arange(6000, device="cuda") % 2).reshape(2, 3000).to(getattr(torch, name))
        tensor = Tensor.from_dlpack("X", there)
        assert tensor.shape() == [2, 3000] and not tensor.is_cpu()
        assert bytes_of(tensor) == there.cpu().view(torch.uint8).numpy().tobytes()
        for back in (torch.from_dlpack(tensor), torch.utils.dlpack.from_dlpack(tensor.to_dlpack())):
            assert back.dtype == there.dtype and back.data_ptr() == there.data_ptr() and torch.equal(back, there)

    def test_capsule(self, torch: Any) -> None:
        there = torch.randn(100_000, device="cuda")
        tensor = Tensor.from_dlpack("X", torch.utils.dlpack.to_dlpack(there))
        assert bytes_of(tensor) == there.cpu().numpy().tobytes()
        capsule = torch.utils.dlpack.to_dlpack(there)
        torch.utils.dlpack.from_dlpack(capsule)
        with pytest.raises(TritonModelException, match="consumed"):
            Tensor.from_dlpack("X", capsule)

    def test_shapes_and_strides(self, torch: Any) -> None:
        there = torch.arange(24.0, device="cuda").reshape(4, 6)
        assert bytes_of(Tensor.from_dlpack("X", there[1:3])) == there[1:3].cpu().numpy().tobytes()
        assert bytes_of(Tensor.from_dlpack("X", there[2, 3])) == there[2, 3].cpu().numpy().tobytes()
        for refused in (there.t(), there[:, 1:3], there[::2]):
            with pytest.raises(TritonModelException, match="^DLPack tensor is not contiguous"):
                Tensor.from_dlpack("X", refused)
        empty = Tensor.from_dlpack("X", torch.empty((0, 3), device="cuda"))
        assert empty.shape() == [0, 3] and bytes_of(empty) == b"" and not empty.is_cpu()
        assert torch.from_dlpack(empty).shape == (0, 3)

    def test_work_in_a_stream_is_waited_for(self, torch: Any) -> None:
        side = torch.cuda.Stream()
        there = torch.zeros(1 << 20, device="cuda")
        there += 0  # its first use would otherwise load it, and wait for all running work
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(300_000_000)
            there += 7
            assert not side.query(), "the work was over too early: nothing is tested"
            tensor = Tensor.from_dlpack("X", there)
        assert side.query()
        assert bytes_of(tensor) == np.full(1 << 20, 7, np.float32).tobytes()

    def test_work_in_the_default_stream_comes_before_a_copy(self, torch: Any) -> None:
        there = torch.zeros(1 << 20, device="cuda")
        tensor = Tensor.from_dlpack("X", torch.utils.dlpack.to_dlpack(there))
        torch.cuda._sleep(300_000_000)
        there += 7
        assert not torch.cuda.current_stream().query(), "the work was over too early: nothing is tested"
        assert bytes_of(tensor) == np.full(1 << 20, 7, np.float32).tobytes()

    def test_memory_goes_back_with_the_tensor(self, torch: Any) -> None:
        gc.collect()
        before = torch.cuda.memory_allocated()
        tensor = Tensor.from_dlpack("X", torch.zeros(1 << 22, device="cuda"))
        assert torch.cuda.memory_allocated() >= before + (4 << 22)
        back = torch.from_dlpack(tensor)
        del tensor
        assert torch.cuda.memory_allocated() >= before + (4 << 22)
        del back
        gc.collect()
        assert torch.cuda.memory_allocated() == before
        with pytest.raises(TritonModelException):
            Tensor.from_dlpack("X", torch.zeros((64, 64), device="cuda").t())
        gc.collect()
        assert torch.cuda.memory_allocated() == before

    def test_pinned_memory(self, torch: Any) -> None:
        there = torch.arange(6.0).pin_memory()
        tensor = Tensor.from_dlpack("X", there)
        assert tensor.is_cpu() and tensor.as_numpy().tolist() == there.tolist()

    def test_device_and_stream_of_the_caller_stay(self, torch: Any) -> None:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            tensor = Tensor.from_dlpack("X", torch.ones(1 << 20, device="cuda"))
            bytes_of(tensor)
            assert torch.cuda.current_stream() == side and torch.cuda.current_device() == 0
            assert float(torch.from_dlpack(tensor).sum()) == 1 << 20

    def test_memory_of_expandable_segments(self) -> None:
        script = """
            import torch
            from triton_python_backend_utils import Tensor
            there = torch.arange(1 << 22, device="cuda")
            tensor = Tensor.from_dlpack("X", there)
            assert tensor._data.read() == there.cpu().numpy().tobytes()
        """
        pytest.importorskip("torch")
        run(script, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", PYTORCH_ALLOC_CONF="expandable_segments:True")


class TestCupy:
    @pytest.mark.parametrize("name", ["float32", "float16", "int64", "uint8", "bool"])
    def test_there_and_back(self, cupy: Any, name: str) -> None:
        there = (cupy.arange(6000) % 2).reshape(2, 3000).astype(name)
        tensor = Tensor.from_dlpack("X", there)
        assert not tensor.is_cpu() and tensor.shape() == [2, 3000]
        assert bytes_of(tensor) == there.get().tobytes()
        back = cupy.from_dlpack(tensor)
        assert back.dtype == there.dtype and back.data.ptr == there.data.ptr and bool((back == there).all())

    def test_work_in_a_stream_is_waited_for(self, cupy: Any) -> None:
        with cupy.cuda.Stream(non_blocking=True):
            there = cupy.zeros(1 << 24, cupy.float32)
            for _ in range(200):
                there += 1
            tensor = Tensor.from_dlpack("X", there)
        assert bytes_of(tensor) == np.full(1 << 24, 200, np.float32).tobytes()

    def test_memory_goes_back_with_the_tensor(self, cupy: Any) -> None:
        pool = cupy.get_default_memory_pool()
        gc.collect()
        before = pool.used_bytes()
        tensor = Tensor.from_dlpack("X", cupy.zeros(1 << 20))
        assert pool.used_bytes() >= before + (8 << 20)
        del tensor
        gc.collect()
        assert pool.used_bytes() == before

    def test_managed_and_pool_memory(self, cupy: Any) -> None:
        for allocator in (cupy.cuda.malloc_async, cupy.cuda.malloc_managed):
            with cupy.cuda.using_allocator(allocator):
                there = cupy.arange(1 << 16)
            try:
                tensor = Tensor.from_dlpack("X", there)
            except TritonModelException as error:  # managed memory is a separate device in DLPack
                assert str(error) == "DLDevice type 13 is not support by Python backend."
                continue
            assert bytes_of(tensor) == there.get().tobytes()


class TestJax:
    @pytest.mark.parametrize("name", ["float32", "bfloat16", "int32", "bool"])
    def test_there_and_back(self, jax: Any, name: str) -> None:
        there = (jax.numpy.arange(6000) % 2).reshape(2, 3000).astype(name)
        tensor = Tensor.from_dlpack("X", there)
        assert not tensor.is_cpu() and tensor.shape() == [2, 3000]
        assert bytes_of(tensor) == np.asarray(there).tobytes()
        back = jax.dlpack.from_dlpack(tensor)
        assert back.dtype == there.dtype and bool((back == there).all())

    def test_array_goes_with_the_tensor(self, jax: Any) -> None:
        there = jax.numpy.arange(1 << 20) + 1
        watched = weakref.ref(there)
        tensor = Tensor.from_dlpack("X", there)
        expected = np.asarray(there).tobytes()
        del there
        assert bytes_of(tensor) == expected
        del tensor
        assert ended(watched)


def run(script: str, **environment: str) -> str:
    """Run a script in its own process; returns its output."""
    search = os.pathsep.join(str(ROOT / folder) for folder in ("stub", "pyutils", "stub/tests"))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": search, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    return text


class TestProcesses:
    def test_the_driver_is_not_there_before_it_is_needed(self) -> None:
        run(
            """
            import numpy as np
            from c_python_backend_utils import dlpack
            from triton_python_backend_utils import Tensor
            if hasattr(np.ndarray, "__dlpack__"):
                Tensor.from_dlpack("X", np.arange(5.0))
            Tensor("X", np.arange(5.0)).to_dlpack()
            assert "libcuda" not in open("/proc/self/maps").read()
            """
        )

    @pytest.mark.parametrize("first", ["cuda.device(0)", "producer.Context(0)"])
    def test_a_forked_process_is_told(self, first: str) -> None:
        run(
            f"""
            import os
            import numpy as np
            import producer
            from c_python_backend_utils import cuda
            from triton_python_backend_utils import Tensor, TritonModelException
            {first}
            made = producer.OnDevice(np.arange(5.0))
            kept = Tensor.from_dlpack("X", made.capsule()) if {first.startswith("cuda")} else None
            child = os.fork()
            if child == 0:
                text = ""
                try:
                    Tensor.from_dlpack("X", made)
                except TritonModelException as error:
                    text = str(error)
                del kept
                os._exit(0 if "CUDA was in use when this process was forked" in text and not made.deleted else 9)
            assert os.waitpid(child, 0)[1] == 0
            if kept is not None:
                assert kept._data.read() == made.array.tobytes()
            """
        )

    def test_tensors_may_live_to_the_end_of_the_interpreter(self) -> None:
        text = run(
            """
            import numpy as np
            import producer
            from triton_python_backend_utils import Tensor
            kept = Tensor.from_dlpack("X", producer.OnDevice(np.arange(5.0)))
            circle = [Tensor.from_dlpack("X", producer.OnDevice(np.arange(5.0)))]
            circle.append(circle)
            """
        )
        assert text == ""

    def test_torch_tensors_may_live_to_the_end_of_the_interpreter(self, torch: Any) -> None:
        assert torch is not None
        text = run(
            """
            import torch
            from triton_python_backend_utils import Tensor
            kept = Tensor.from_dlpack("X", torch.ones(1000, device="cuda"))
            exported = torch.from_dlpack(kept)
            """
        )
        assert text == ""


TORCH_MODEL = """
    import torch
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                x = torch.from_dlpack(request.inputs()[0]).cuda()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", x * 2)]))
                del x
            self.allocated = torch.cuda.memory_allocated()
            return responses
"""


class TestStub:
    @pytest.mark.parametrize("size", [4, 1024, 1025, 1 << 20, 1 << 24])
    def test_a_model_answers_with_tensors_of_torch(self, torch: Any, start: Any, size: int) -> None:
        from frames import Request

        assert torch is not None
        stub = start(TORCH_MODEL)
        array = np.arange(size, dtype=np.float32)
        for _ in range(3):
            executed = stub.execute(Request(1, [("IN", array)]))
            assert executed.text == "" and executed.responses[0].error == ""
            (response,) = executed.responses
            (output,) = response.outputs
            assert output.data == (array * 2).tobytes() and output.shape == (size,)
