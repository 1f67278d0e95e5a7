"""DLPack in both directions, with numpy if possible, otherwise with handmade capsules."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from c_python_backend_utils import cuda, dlpack
from c_python_backend_utils.datatypes import BF16, DLPACK, NUMPY
from inputs import incoming
from triton_python_backend_utils import Tensor, TritonModelException

numpy_has_it = pytest.mark.skipif(not hasattr(np, "from_dlpack"), reason="numpy.from_dlpack came with 1.23")
CODES = [code for code, pair in enumerate(DLPACK) if pair is not None and code != BF16]


class Made:
    """A handmade capsule that records whether its deleter has run."""

    def __init__(
        self,
        array: np.ndarray,
        kind: tuple[int, int, int],
        strides: tuple[int, ...] | None = None,
        device: tuple[int, int] = (1, 0),
        offset: int = 0,
    ) -> None:
        self.deleted = 0
        self.array = array
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.strides = (ctypes.c_int64 * array.ndim)(*strides) if strides is not None else None
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete)
        self.managed = dlpack._Managed(
            data=array.__array_interface__["data"][0] - offset,
            device_type=device[0],
            device_id=device[1],
            ndim=array.ndim,
            dtype=dlpack._DataType(*kind),
            shape=ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64)),
            strides=ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64)) if self.strides else None,
            byte_offset=offset,
            deleter=ctypes.cast(self.deleter, ctypes.c_void_p),
        )
        new = ctypes.PyDLL(None).PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule: Any = new(ctypes.addressof(self.managed), b"dltensor", None)
        self.device = device

    def _delete(self, _address: int) -> None:
        self.deleted += 1

    def __dlpack__(self, stream: object = None) -> Any:
        assert stream is None
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class TestExport:
    @numpy_has_it
    @pytest.mark.parametrize("code", [code for code in CODES if code != 1])
    def test_numpy_takes_it(self, code: int) -> None:
        array = np.arange(6).reshape(2, 3).astype(NUMPY[code])
        taken = np.from_dlpack(Tensor("X", array))  # type: ignore[arg-type]  # an older protocol than its stubs say
        assert taken.dtype == array.dtype
        np.testing.assert_array_equal(taken, array)
        array[1, 2] = 7
        assert taken[1, 2] == 7, "the memory is not shared"

    @pytest.mark.parametrize("code", CODES)
    def test_structure_says_type_and_shape(self, code: int) -> None:
        tensor = Tensor("X", np.zeros((2, 3), NUMPY[code]))
        managed = dlpack._Managed.from_address(dlpack._get_pointer(tensor.to_dlpack(), b"dltensor"))
        assert (managed.dtype.code, managed.dtype.bits, managed.dtype.lanes) == (*(DLPACK[code] or ()), 1)
        assert managed.ndim == 2 and list(managed.shape[:2]) == [2, 3] and managed.byte_offset == 0
        assert (managed.device_type, managed.device_id) == tensor.__dlpack_device__() == (1, 0)

    def test_holds_the_tensor_until_the_capsule_dies(self) -> None:
        tensor = Tensor("X", np.zeros(4))
        before = sys.getrefcount(tensor)
        capsule = tensor.to_dlpack()
        assert sys.getrefcount(tensor) == before + 1
        del capsule
        assert sys.getrefcount(tensor) == before

    @numpy_has_it
    def test_holds_the_tensor_until_the_consumer_has_finished(self) -> None:
        tensor = Tensor("X", np.zeros(4))
        watched = weakref.ref(tensor)
        taken = np.from_dlpack(tensor)  # type: ignore[arg-type]
        del tensor
        gc.collect()
        assert watched() is not None
        del taken
        gc.collect()
        assert watched() is None

    def test_strings_are_refused(self) -> None:
        with pytest.raises(TritonModelException, match=r"^DLPack does not have support for string tensors\.$"):
            Tensor("X", np.array([b"x"], np.object_)).to_dlpack()

    def test_newer_keywords_are_a_type_error(self) -> None:
        tensor: Any = Tensor("X", np.zeros(4))
        with pytest.raises(TypeError):
            tensor.__dlpack__(max_version=(1, 0))
        assert tensor.__dlpack__(stream=1) is not None

    @numpy_has_it
    def test_writes_to_an_exported_input_are_sent(self) -> None:
        tensor = incoming(8, (3,), np.arange(3, dtype=np.int32).tobytes())
        seen = tensor.as_numpy()
        taken = np.from_dlpack(tensor)  # type: ignore[arg-type]
        pointer = taken.__array_interface__["data"][0]
        ctypes.c_int32.from_address(pointer).value = 9
        assert isinstance(tensor._data, np.ndarray) and tensor._data[0] == 9
        assert seen.tolist() == [0, 1, 2]

    def test_bf16_goes_through(self) -> None:
        tensor = incoming(BF16, (3,), b"\x80\x3f\x00\x40\x40\x40")
        managed = dlpack._Managed.from_address(dlpack._get_pointer(tensor.to_dlpack(), b"dltensor"))
        assert (managed.dtype.code, managed.dtype.bits) == (4, 16)
        copied = Tensor.from_dlpack("Y", tensor)
        assert copied.triton_dtype() == BF16 and copied.shape() == [3]
        assert copied._data is not None and copied._data.tobytes() == tensor._bytes()  # type: ignore[union-attr]
        assert copied.as_numpy().astype(np.float32).tolist() == [1, 2, 3]


class TestImport:
    @pytest.mark.parametrize("code", [*CODES, BF16])
    def test_every_type(self, code: int) -> None:
        array = np.arange(6).reshape(2, 3).astype(NUMPY[code] or np.uint16)
        pair = DLPACK[code]
        assert pair is not None
        made = Made(array, (*pair, 1))
        tensor = Tensor.from_dlpack("X", made)
        assert tensor.triton_dtype() == code and tensor.shape() == [2, 3] and tensor.name() == "X"
        assert tensor._data.tobytes() == array.tobytes()  # type: ignore[union-attr]
        assert made.deleted == 0
        del tensor
        gc.collect()
        assert made.deleted == 1

    def test_capsule_itself(self) -> None:
        made = Made(np.arange(3.0), (2, 64, 1))
        tensor = Tensor.from_dlpack("X", made.capsule)
        assert tensor.as_numpy().tolist() == [0, 1, 2]
        with pytest.raises(TritonModelException, match="consumed"):
            Tensor.from_dlpack("X", made.capsule)

    def test_memory_is_read_when_it_is_sent_and_as_numpy_is_a_snapshot_of_the_start(self) -> None:
        array = np.arange(3.0)
        tensor = Tensor.from_dlpack("X", Made(array, (2, 64, 1)))
        array[0] = 5
        seen = tensor.as_numpy()
        assert seen.tolist() == [0, 1, 2] and tensor.as_numpy() is seen
        assert tensor._data.tolist() == [5, 1, 2]  # type: ignore[union-attr]

    def test_from_numpy(self) -> None:
        if not hasattr(np.ndarray, "__dlpack__"):
            pytest.skip("numpy's arrays have DLPack since 1.22")
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        tensor = Tensor.from_dlpack("X", array)
        assert tensor.as_numpy().tolist() == array.tolist()
        del tensor
        gc.collect()

    def test_read_only_arrays(self) -> None:
        array = np.arange(3.0)
        array.flags.writeable = False
        try:
            array.__dlpack__(max_version=(1, 0))  # type: ignore[call-arg,unused-ignore]  # from 2.1 on
        except (AttributeError, TypeError):
            pytest.skip("numpy makes versioned capsules since 2.1, and says of no other that its memory is read-only")
        tensor = Tensor.from_dlpack("X", array)
        assert tensor.as_numpy().tolist() == [0, 1, 2] and tensor.as_numpy().flags.writeable

    def test_producers_that_know_no_keyword(self) -> None:
        class Bare(Made):
            def __dlpack__(self) -> Any:  # type: ignore[override]
                return self.capsule

        assert Tensor.from_dlpack("X", Bare(np.arange(3.0), (2, 64, 1))).as_numpy().tolist() == [0, 1, 2]

    def test_byte_offset(self) -> None:
        array = np.arange(4, dtype=np.int32)
        assert Tensor.from_dlpack("X", Made(array, (0, 32, 1), offset=16)).as_numpy().tolist() == [0, 1, 2, 3]

    def test_pinned_memory_is_memory(self) -> None:
        assert Tensor.from_dlpack("X", Made(np.arange(4.0), (2, 64, 1), device=(3, 1))).is_cpu()

    @pytest.mark.parametrize("strides", [(3, 1), None])
    def test_contiguous_arrays_are_taken(self, strides: tuple[int, ...] | None) -> None:
        assert Tensor.from_dlpack("X", Made(np.zeros((2, 3)), (2, 64, 1), strides)).shape() == [2, 3]

    @pytest.mark.parametrize("strides", [(1, 2), (6, 1), (3, 2)])
    def test_not_contiguous(self, strides: tuple[int, ...]) -> None:
        made = Made(np.zeros((2, 3)), (2, 64, 1), strides)
        with pytest.raises(
            TritonModelException, match=r"^DLPack tensor is not contiguous\. Only contiguous DLPack ten"
        ):
            Tensor.from_dlpack("X", made)
        assert made.deleted == 0, "what is refused stays the producer's"

    @pytest.mark.parametrize(
        ("shape", "strides"), [((0, 3), None), ((0, 3), (3, 1)), ((2, 0), None), ((2, 0), (1, 1)), ((0,), (1,))]
    )
    def test_arrays_without_elements_are_taken(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
        assert Tensor.from_dlpack("X", Made(np.zeros(shape), (2, 64, 1), strides)).shape() == list(shape)

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ((2, 32, 2), r"^Dtype is invalid\.$"),
            ((5, 64, 1), r"^Dtype is invalid\.$"),
            ((3, 64, 1), r"^Dtype is invalid\.$"),
            ((0, 4, 1), r"^Dtype is invalid\.$"),
            ((4, 32, 1), "^Expected BF16 tensor to have 16 bits, but had: 32$"),
            ((9, 8, 1), r'^DType code "9" is not supported\.$'),
        ],
        ids=["lanes", "complex", "opaque", "4 bits", "bfloat32", "unknown"],
    )
    def test_types_that_do_not_exist(self, kind: tuple[int, int, int], text: str) -> None:
        with pytest.raises(TritonModelException, match=text):
            Tensor.from_dlpack("X", Made(np.zeros(2), kind))

    @pytest.mark.parametrize(
        ("device", "text"),
        [
            (
                (2, 0),
                r"^DLPack capsule passed pointer to memory allocated on GPU device, {11}when GPU is not available$",
            ),
            ((7, 0), r"^DLDevice type 7 is not support by Python backend\.$"),
        ],
    )
    def test_other_devices(self, device: tuple[int, int], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda, "_driver", cuda.Unavailable("no driver"))  # whether or not this machine has one
        made = Made(np.zeros(2), (2, 64, 1), device=device)
        for source in (made, made.capsule):
            with pytest.raises(TritonModelException, match=text):
                Tensor.from_dlpack("X", source)

    @pytest.mark.parametrize("source", [[1], None, 5, "x", object()])
    def test_no_dlpack(self, source: object) -> None:
        with pytest.raises(TritonModelException) as raised:
            Tensor.from_dlpack("X", source)
        assert str(raised.value) == (
            "Provided tensor is not supported. Tensor must be a DLPack capsule" + " " * 9
            + "or have `__dlpack__` and `__dlpack_device__` attributes"
        )  # fmt: skip

    def test_wrong_results_of_the_producer(self) -> None:
        class Wrong:
            def __dlpack__(self, stream: object = None) -> Any:
                return 5

            def __dlpack_device__(self) -> tuple[int, int]:
                return (1, 0)

        with pytest.raises(TypeError, match=r"^Object of type 'int' is not an instance of 'capsule'$"):
            Tensor.from_dlpack("X", Wrong())

    def test_exceptions_of_the_producer_pass(self) -> None:
        class Raises:
            def __dlpack__(self, stream: object = None) -> Any:
                raise LookupError("mine")

            def __dlpack_device__(self) -> tuple[int, int]:
                return (1, 0)

        with pytest.raises(LookupError, match=r"^mine$"):
            Tensor.from_dlpack("X", Raises())

    def test_wrong_arguments_are_refused(self) -> None:
        with pytest.raises(TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
            Tensor.from_dlpack("", None)
        for args, named in (((), {}), (("X",), {}), ((1, np.zeros(1)), {}), ((), {"name": "X", "tensor": np.zeros(1)})):
            with pytest.raises(TypeError, match=r"^from_dlpack\(\): incompatible function arguments\."):
                Tensor.from_dlpack(*args, **named)
