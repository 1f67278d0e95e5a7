"""Tensors on devices, with the fake driver: stream order, contexts, deleters, all failing calls."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from typing import Any, Callable, Iterator

import fakecuda
import numpy as np
import producer
import pytest
from c_python_backend_utils import cuda, dlpack, runtime
from c_python_backend_utils import tensor as tensors
from c_python_backend_utils.datatypes import BF16, DLPACK, NUMPY
from c_python_backend_utils.memory import DeviceError, DeviceMemory
from fakecuda import Fake
from producer import Bare, Context, Older, OnDevice
from triton_python_backend_utils import Tensor, TritonModelException

# Other tests of this process may have left threads, which forked processes do not need.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

CODES = [code for code, pair in enumerate(DLPACK) if pair is not None]
OUT_OF_MEMORY = 2
ILLEGAL_ADDRESS = 700


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    yield from fakecuda.in_process(monkeypatch)


def memory_of(tensor: Tensor) -> DeviceMemory:
    data = tensor._data
    assert isinstance(data, DeviceMemory)
    return data


def managed_of(capsule: object) -> Any:
    return dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor"))


class TestImport:
    @pytest.mark.parametrize("code", CODES)
    @pytest.mark.parametrize("device", [0, 1])
    def test_every_type(self, fake: Fake, code: int, device: int) -> None:
        array = np.arange(6).reshape(2, 3).astype(NUMPY[code] or np.uint16)
        made = OnDevice(array, device, dtype=(*(DLPACK[code] or (0, 0)), 1))
        tensor = Tensor.from_dlpack("X", made)
        assert tensor.triton_dtype() == code and tensor.shape() == [2, 3] and tensor.name() == "X"
        assert not tensor.is_cpu() and tensor.__dlpack_device__() == (2, device)
        before = fake.count("bytes_to_host")
        assert memory_of(tensor).read() == array.tobytes()
        assert fake.count("bytes_to_host") - before == array.nbytes
        del tensor
        assert made.deleted == 1 and made.address == 0

    def test_import_copies_nothing(self, fake: Fake) -> None:
        made = OnDevice(np.arange(1000))
        before = [fake.count(name) for name in ("bytes_to_host", "bytes_on_device", "bytes_to_device")]
        tensor = Tensor.from_dlpack("X", made)
        tensor.to_dlpack()
        after = [fake.count(name) for name in ("bytes_to_host", "bytes_on_device", "bytes_to_device")]
        assert after == before

    @pytest.mark.parametrize("kind", [OnDevice, Older, Bare])
    def test_bytes_are_complete_with_any_producer(self, kind: type[OnDevice]) -> None:
        array = np.arange(1000.0)
        made = kind(array, stream=producer.new_stream())
        tensor = Tensor.from_dlpack("X", made)
        made.stream = None  # without another stream to wait for
        assert memory_of(tensor).read() == array.tobytes()

    def test_the_stream_is_a_private_one_that_holds_nothing_up(self, fake: Fake) -> None:
        one, two = OnDevice(np.arange(4.0)), OnDevice(np.arange(4.0))
        Tensor.from_dlpack("X", one)
        streams = fake.live("stream")
        Tensor.from_dlpack("X", two)
        stream = one.asked[0]["stream"]
        assert stream > 2 and two.asked[0]["stream"] == stream and fake.live("stream") == streams
        assert one.asked[0]["max_version"] == (1, 0)

    def test_a_capsule_is_ordered_by_the_legacy_default_stream(self) -> None:
        made = OnDevice(np.zeros(1000, np.uint8))
        tensor = Tensor.from_dlpack("X", made.capsule())
        with Context(0):
            producer.check(producer.driver().cuMemsetD8_v2(ctypes.c_uint64(made.address), 7, ctypes.c_size_t(1000)))
        assert memory_of(tensor).read() == b"\7" * 1000
        blocking = producer.new_stream(flags=0)
        with Context(0):
            producer.check(
                producer.driver().cuMemsetD8Async(
                    ctypes.c_uint64(made.address), 8, ctypes.c_size_t(1000), ctypes.c_void_p(blocking)
                )
            )
        assert memory_of(tensor).read() == b"\x08" * 1000

    def test_versioned(self) -> None:
        made = OnDevice(np.arange(4.0), versioned=True)
        made.flags = 1  # read-only
        tensor = Tensor.from_dlpack("X", made)
        assert memory_of(tensor).read() == made.array.tobytes()
        del tensor
        assert made.deleted == 1
        capsule = made.capsule(versioned=True)
        Tensor.from_dlpack("X", capsule)
        with pytest.raises(TritonModelException, match="consumed"):
            Tensor.from_dlpack("X", capsule)

    def test_another_version(self) -> None:
        made = OnDevice(np.arange(4.0), versioned=True)
        made.version = (2, 0)
        with pytest.raises(TritonModelException, match=r"is of version 2\.0, want 1"):
            Tensor.from_dlpack("X", made)
        gc.collect()
        assert (made.capsules, made.deleted) == (1, 1)

    def test_byte_offset(self) -> None:
        made = OnDevice(np.arange(10.0), offset=64)
        assert memory_of(Tensor.from_dlpack("X", made)).read() == made.array.tobytes()

    @pytest.mark.parametrize("strides", [(3, 1), None])
    def test_contiguous(self, strides: tuple[int, ...] | None) -> None:
        assert Tensor.from_dlpack("X", OnDevice(np.zeros((2, 3)), strides=strides)).shape() == [2, 3]

    @pytest.mark.parametrize("strides", [(1, 2), (6, 1), (3, 2)])
    def test_not_contiguous(self, strides: tuple[int, ...]) -> None:
        made = OnDevice(np.zeros((2, 3)), strides=strides)
        with pytest.raises(TritonModelException, match=r"^DLPack tensor is not contiguous\. Only contiguous DLPack"):
            Tensor.from_dlpack("X", made)
        gc.collect()
        assert (made.capsules, made.deleted) == (1, 1), "the producer's destructor releases what was refused"

    def test_no_elements(self, fake: Fake) -> None:
        made = OnDevice(np.zeros((0, 3)))
        copies = fake.count("cuMemcpyDtoH_v2")
        tensor = Tensor.from_dlpack("X", made)
        assert tensor.shape() == [0, 3] and not tensor.is_cpu() and memory_of(tensor).read() == b""
        assert fake.count("cuMemcpyDtoH_v2") == copies
        capsule = tensor.to_dlpack()
        assert managed_of(capsule).shape[0] == 0
        del tensor, capsule
        assert made.deleted == 1

    def test_no_dimensions(self) -> None:
        tensor = Tensor.from_dlpack("X", OnDevice(np.float32(3.5)))
        assert tensor.shape() == [] and memory_of(tensor).read() == np.float32(3.5).tobytes()
        capsule = tensor.to_dlpack()
        assert managed_of(capsule).ndim == 0

    @pytest.mark.parametrize("device_type", [10, 13, 7])
    def test_other_kinds_of_device(self, device_type: int) -> None:
        made = OnDevice(np.zeros(2), device_type=device_type)
        for source in (made, made.capsule()):
            with pytest.raises(TritonModelException, match=f"^DLDevice type {device_type} is not support by Python b"):
                Tensor.from_dlpack("X", source)

    def test_a_device_that_does_not_exist(self) -> None:
        made = OnDevice(np.zeros(2))
        made.device = 2
        for source in (made, made.capsule()):
            with pytest.raises(TritonModelException, match="on GPU device, {11}when GPU is not available$"):
                Tensor.from_dlpack("X", source)

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = OnDevice(np.zeros(2))
        monkeypatch.setattr(cuda, "_LIBRARY", "libcuda-that-is-not-there.so.1")
        monkeypatch.setattr(cuda, "_driver", None)
        for source in (made, made.capsule()):
            with pytest.raises(TritonModelException, match="on GPU device, {11}when GPU is not available$"):
                Tensor.from_dlpack("X", source)
        del source
        gc.collect()
        assert (made.capsules, made.deleted) == (1, 1), "what is kept of the refusal keeps the tensor"

    def test_no_devices(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        made = OnDevice(np.zeros(2))
        fake.present(False)
        with pytest.raises(TritonModelException, match="when GPU is not available"):
            Tensor.from_dlpack("X", made)
        fake.present(True)
        monkeypatch.setattr(cuda, "_driver", None)
        Tensor.from_dlpack("X", made)

    def test_visible_devices(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        fake.present(True)
        assert cuda.driver().count == 1 and cuda.device(0).number == 0
        with pytest.raises(cuda.Unavailable):
            cuda.device(1)

    def test_as_numpy_copies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tensor = Tensor.from_dlpack("X", OnDevice(np.arange(6.0).reshape(2, 3)))
        array = tensor.as_numpy()
        assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert tensor.as_numpy() is array and not tensor.is_cpu()
        bf16 = Tensor.from_dlpack("X", OnDevice(np.array([0x3F80, 0x4000], np.uint16), dtype=(4, 16, 1)))
        with monkeypatch.context() as without:
            without.setattr(tensors, "bfloat16", lambda: None)
            with pytest.raises(TritonModelException, match="BF16 and cannot be converted"):
                bf16.as_numpy()
        assert bf16.as_numpy().astype(np.float32).tolist() == [1, 2]

    def test_as_numpy_refuses_if_the_model_wants_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime.current(), "converts_device_tensors", lambda: False, raising=False)
        for array, kind in ((np.arange(5.0), None), (np.zeros(2, np.uint16), (4, 16, 1))):
            with pytest.raises(TritonModelException) as raised:
                Tensor.from_dlpack("X", OnDevice(array, dtype=kind)).as_numpy()
            assert str(raised.value) == "Tensor is stored in GPU and cannot be converted to NumPy."

    def test_exceptions_of_the_producer_pass_and_the_context_goes(self) -> None:
        class Raises(OnDevice):
            def __dlpack__(self, **named: Any) -> Any:
                assert producer.current() != 0, "the device of the tensor is not current"
                raise LookupError("mine")

        with pytest.raises(LookupError, match=r"^mine$"):
            Tensor.from_dlpack("X", Raises(np.zeros(2)))
        assert producer.current() == 0

    def test_a_non_capsule_is_rejected(self) -> None:
        class Wrong(OnDevice):
            def __dlpack__(self, **named: Any) -> Any:
                return 5

        with pytest.raises(TypeError, match=r"^Object of type 'int' is not an instance of 'capsule'$"):
            Tensor.from_dlpack("X", Wrong(np.zeros(2)))


class TestExport:
    @pytest.mark.parametrize("code", CODES)
    def test_structure(self, code: int) -> None:
        array = np.zeros((2, 3), NUMPY[code] or np.uint16)
        made = OnDevice(array, 1, dtype=(*(DLPACK[code] or (0, 0)), 1))
        tensor = Tensor.from_dlpack("X", made)
        capsule = tensor.to_dlpack()
        managed = managed_of(capsule)
        assert (managed.dtype.code, managed.dtype.bits, managed.dtype.lanes) == (*(DLPACK[code] or ()), 1)
        assert managed.ndim == 2 and list(managed.shape[:2]) == [2, 3] and managed.byte_offset == 0
        assert not managed.strides and managed.data == made.address
        assert (managed.device_type, managed.device_id) == (2, 1)

    def test_holds_the_tensor_until_the_capsule_dies(self) -> None:
        made = OnDevice(np.zeros(4))
        tensor = Tensor.from_dlpack("X", made)
        before = sys.getrefcount(tensor)
        capsule = tensor.to_dlpack()
        assert sys.getrefcount(tensor) == before + 1
        del tensor
        assert made.deleted == 0
        del capsule
        assert made.deleted == 1

    def test_capsules_of_our_own_where_numpy_makes_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = OnDevice(np.arange(6, dtype=np.int16).reshape(2, 3), 1)
        tensor = Tensor.from_dlpack("X", made)
        with monkeypatch.context() as older:  # older than 1.22
            older.setattr(dlpack, "hasattr", lambda *_: False, raising=False)
            capsule, dropped = tensor.to_dlpack(), tensor.to_dlpack()
        del tensor, dropped
        again = Tensor.from_dlpack("Y", capsule)
        assert again.shape() == [2, 3] and again.__dlpack_device__() == (2, 1)
        assert memory_of(again).read() == made.array.tobytes()
        del again, capsule
        assert made.deleted == 1

    def test_ours_goes_through(self) -> None:
        made = OnDevice(np.arange(7, dtype=np.uint16), dtype=(4, 16, 1))
        first = Tensor.from_dlpack("X", made)
        second = Tensor.from_dlpack("Y", first)
        third = Tensor.from_dlpack("Z", second.to_dlpack())
        assert third.triton_dtype() == BF16 and memory_of(third).address == made.address
        del first, second
        assert made.deleted == 0
        del third
        assert made.deleted == 1


class TestDeleters:
    @pytest.mark.skipif("t" in sys.abiflags, reason="without the GIL, the thread that made an object ends it")
    def test_run_in_the_thread_that_lets_go(self) -> None:
        ran: list[int] = []

        class Tells(OnDevice):
            def _delete(self, at: int) -> None:
                ran.append(threading.get_ident())
                super()._delete(at)

        kept = [Tensor.from_dlpack("X", Tells(np.zeros(4)))]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        assert ran == [thread.ident]

    def test_run_while_an_exception_is_on_its_way(self) -> None:
        made = OnDevice(np.zeros(4))

        def fails() -> None:
            tensor = Tensor.from_dlpack("X", made)
            raise LookupError(tensor.name())

        with pytest.raises(LookupError, match=r"^X$"):
            fails()
        gc.collect()
        assert made.deleted == 1

    def test_run_with_a_circle(self) -> None:
        made = OnDevice(np.zeros(4))
        circle: list[Any] = [Tensor.from_dlpack("X", made)]
        circle.append(circle)
        del circle
        gc.collect()
        assert made.deleted == 1

    def test_do_not_run_in_a_forked_process(self) -> None:
        made = OnDevice(np.zeros(4))
        kept = [Tensor.from_dlpack("X", made)]
        child = os.fork()
        if child == 0:
            kept.clear()
            os._exit(made.deleted)
        assert os.waitpid(child, 0)[1] == 0
        kept.clear()
        assert made.deleted == 1


class TestForks:
    @staticmethod
    def forked(work: Callable[[], None]) -> None:
        """Run a function in a forked process, with its own counts of the fake."""
        child = os.fork()
        if child == 0:
            code = 9
            try:
                work()
                code = 0
            finally:
                os.kill(os.getpid(), signal.SIGKILL) if code else os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    def test_after_our_own_use(self, fake: Fake) -> None:
        made = OnDevice(np.zeros(4))
        tensor = Tensor.from_dlpack("X", made)
        before = fake.count("after_fork")

        def work() -> None:
            with pytest.raises(TritonModelException, match="CUDA was in use when this process was forked"):
                Tensor.from_dlpack("X", made)
            with pytest.raises(DeviceError, match="failed to copy data: CUDA was in use when this process was forked"):
                memory_of(tensor).read()

        self.forked(work)
        assert fake.count("after_fork") == before, "the driver was called"

    def test_after_another_librarys_use(self) -> None:
        made = OnDevice(np.zeros(4))

        def work() -> None:
            with pytest.raises(TritonModelException, match="CUDA was in use when this process was forked"):
                Tensor.from_dlpack("X", made)

        self.forked(work)

    def test_before_any_use(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        fake.present(True)  # as if it had never been initialized
        monkeypatch.setattr(cuda, "_driver", None)

        def work() -> None:
            assert memory_of(Tensor.from_dlpack("X", OnDevice(np.arange(4)))).read() == np.arange(4).tobytes()

        self.forked(work)

    def test_a_lock_that_another_thread_held(self) -> None:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with cuda._mu:
                held.set()
                done.wait()

        def take() -> None:
            with cuda._mu:
                pass

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            self.forked(take)
        finally:
            done.set()
            thread.join()


class TestContexts:
    def test_of_the_caller_stays(self) -> None:
        made = OnDevice(np.arange(4), 1)
        assert producer.current() == 0
        tensor = Tensor.from_dlpack("X", made)
        memory_of(tensor).read()
        assert producer.current() == 0
        with Context(0):
            before = producer.current()
            memory_of(Tensor.from_dlpack("X", OnDevice(np.arange(4), 1))).read()
            assert producer.current() == before

    def test_is_the_tensors(self, fake: Fake) -> None:
        before = fake.count("wrong_context"), fake.count("without_context")
        with Context(0):
            tensor = Tensor.from_dlpack("X", OnDevice(np.arange(4), 1))
            memory_of(tensor).read()
        assert (fake.count("wrong_context"), fake.count("without_context")) == before

    def test_is_made_at_the_first_need(self, fake: Fake) -> None:
        contexts = fake.live("context")
        cuda.driver()
        assert fake.live("context") == contexts
        cuda.device(1)
        assert fake.live("context") == contexts + 1 and fake.live("stream") == 0

    def test_is_retained_anew_after_a_reset(self, fake: Fake) -> None:
        Tensor.from_dlpack("X", OnDevice(np.arange(4)))
        fake.library.cuDevicePrimaryCtxReset_v2(0)
        for again in (True, False):  # the first use fails
            made = OnDevice(np.arange(4))
            try:
                tensor = Tensor.from_dlpack("X", made)
            except TritonModelException:
                assert again, "the device is lost for good"
                continue
            assert memory_of(tensor).read() == made.array.tobytes()


class TestCopies:
    def test_on_and_between_devices(self, fake: Fake) -> None:
        array = np.arange(1000)
        here, there, other = OnDevice(array), OnDevice(np.zeros(1000, int)), OnDevice(np.zeros(1000, int), 1)
        counted = [fake.count(name) for name in ("bytes_on_device", "bytes_between_devices", "bytes_to_host")]
        cuda.device(0).copy(there.address, here.address, 8000)
        cuda.device(1).copy(other.address, there.address, 8000, cuda.device(0))
        now = [fake.count(name) for name in ("bytes_on_device", "bytes_between_devices", "bytes_to_host")]
        assert [b - a for a, b in zip(counted, now)] == [8000, 8000, 0]
        back = np.zeros(1000, int)
        cuda.device(1).copy_to_host(back.__array_interface__["data"][0], other.address, 8000)
        assert (back == array).all()
        array += 1
        cuda.device(1).copy_from_host(other.address, array.__array_interface__["data"][0], 8000)
        cuda.device(1).copy_to_host(back.__array_interface__["data"][0], other.address, 8000)
        assert (back == array).all()
        for made in (here, there, other):
            made.free()

    def test_where_an_address_is(self) -> None:
        made = OnDevice(np.arange(1000), 1)
        assert cuda.device(1).range_of(made.address + 100) == (made.address, 8000, 1, False, True)
        address = ctypes.c_uint64()
        with Context(0):
            producer.check(producer.driver().cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(64), 1))
        assert cuda.device(0).range_of(address.value) == (address.value, 64, 0, True, False)
        with Context(0):
            producer.check(producer.driver().cuMemFree_v2(address))
            producer.check(producer.driver().cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(64), None))
        assert not cuda.device(0).range_of(address.value).exportable
        with pytest.raises(cuda.CudaError):
            cuda.device(0).range_of(0x1000)


class TestFailures:
    """Each call fails once: the text is right, nothing leaks, and the next call succeeds."""

    @pytest.mark.parametrize(
        ("faults", "text"),
        [
            ("cuInit:1=999", "Failed to create a CUDA stream for a DLPack call."),
            ("cuDeviceGetCount:1=999", "Failed to create a CUDA stream for a DLPack call."),
            ("cuDeviceGet:1=101", "Failed to create a CUDA stream for a DLPack call."),
            ("cuDevicePrimaryCtxRetain:1=2", "Failed to create a CUDA stream for a DLPack call."),
            ("cuStreamCreate:1=2", "Failed to create a CUDA stream for a DLPack call."),
            ("cuCtxPushCurrent_v2:1=201", "Failed to create a CUDA stream for a DLPack call."),
            ("cuCtxPushCurrent_v2:2=709", "Failed to get current CUDA device id."),
            ("cuStreamSynchronize:1=700", "Failed to synchronize CUDA device with id 0"),
        ],
    )
    def test_of_an_import(self, fake: Fake, faults: str, text: str) -> None:
        made = OnDevice(np.arange(4))
        fake.fail(faults)
        with pytest.raises(TritonModelException) as raised:
            Tensor.from_dlpack("X", made)
        assert str(raised.value) == text and isinstance(raised.value.__cause__, cuda.CudaError)
        del raised
        gc.collect()
        assert producer.current() == 0
        assert made.deleted == made.capsules
        again = OnDevice(np.arange(4))
        assert memory_of(Tensor.from_dlpack("X", again)).read() == again.array.tobytes()

    def test_of_an_import_without_order(self, fake: Fake) -> None:
        fake.fail("cuCtxSynchronize:1=719")
        made = Bare(np.arange(4))
        with pytest.raises(TritonModelException, match=r"^Failed to synchronize CUDA device with id 0$"):
            Tensor.from_dlpack("X", made)
        gc.collect()
        assert made.deleted == made.capsules == 1

    @pytest.mark.parametrize(
        ("faults", "reason"),
        [
            (f"cuMemcpyDtoH_v2:1={ILLEGAL_ADDRESS}", "an illegal memory access was encountered"),
            (f"cuMemcpyDtoH_v2:1={OUT_OF_MEMORY}", "out of memory"),
            ("cuMemcpyDtoH_v2:1=12345", "error 12345"),
            ("cuCtxPushCurrent_v2:1=709", "context is destroyed"),
        ],
    )
    def test_of_a_copy(self, fake: Fake, faults: str, reason: str) -> None:
        made = OnDevice(np.arange(4))
        tensor = Tensor.from_dlpack("X", made)
        fake.fail(faults)
        with pytest.raises(DeviceError) as raised:
            memory_of(tensor).read()
        assert str(raised.value) == (
            "An error occurred while trying to load GPU buffers in the Python backend stub: "
            f"failed to copy data: {reason}"
        )
        assert producer.current() == 0
        assert memory_of(tensor).read() == made.array.tobytes()

    def test_of_a_pop(self, fake: Fake) -> None:
        tensor = Tensor.from_dlpack("X", OnDevice(np.arange(4)))
        fake.fail("cuCtxPopCurrent_v2:1=201")
        assert memory_of(tensor).read() == np.arange(4).tobytes()
        producer.check(producer.driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))

    @pytest.mark.parametrize(("code", "same"), [(400, True), (1, True), (709, False)])
    def test_of_opening(self, fake: Fake, code: int, same: bool) -> None:
        device = cuda.device(0)
        fake.fail(f"cuIpcOpenMemHandle_v2:1={code}")
        with pytest.raises(cuda.CudaError):
            device.open(bytes(64))
        assert producer.current() == 0
        assert (cuda.device(0) is device) == same, "the end of a maker is no end of our context"

    def test_nothing_is_left(self, fake: Fake) -> None:
        for device in (0, 1):
            for kind in (OnDevice, Older, Bare):
                memory_of(Tensor.from_dlpack("X", kind(np.arange(4), device))).read()
        gc.collect()
        assert fake.live("allocation") == 0 and fake.live("stream") == 2


def test_models_are_tested_without_a_server(tmp_path: Any) -> None:
    """nereid_testing copies a model's tensors, like a server."""
    from nereid_testing import Server, outputs

    version = tmp_path / "doubles" / "1"
    version.mkdir(parents=True)
    (tmp_path / "doubles" / "config.pbtxt").write_text(
        'backend: "python" input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ] '
        'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]'
    )
    (version / "model.py").write_text(
        "import triton_python_backend_utils as pb_utils\n"
        "from producer import OnDevice\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        made = [OnDevice(r.inputs()[0].as_numpy() * 2, 1) for r in requests]\n"
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('OUT', it)]) for it in made]\n"
    )
    with Server() as server:
        response = server.load(str(tmp_path / "doubles")).infer({"IN": [1, 2, 3]})
        assert outputs(response)["OUT"].tolist() == [2, 4, 6]
