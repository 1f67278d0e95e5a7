"""Tensors from and to other libraries by DLPack, for memory of the CPU.

Export. numpy makes the capsule where it can (1.22), over an array whose base holds the Tensor: then its destructor and
its deleter are C, which may run at any moment, even while an exception is on its way. What numpy cannot say, bool in
older versions and BF16, is written into the structure afterwards. For older versions there is a capsule of our own.

Import. The capsule is renamed, the memory is read through an array, and the producer's deleter runs with its last view.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .datatypes import DLPACK, FROM_DLPACK, STORAGE
from .error import TritonModelException

_CPU = 1
_CUDA = 2
_CUDA_HOST = 3

_FRESH = b"dltensor"
_USED = b"used_dltensor"  # capsules keep the pointer: module level, so that it lives as long as they may

_BFLOAT = 4


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Managed(ctypes.Structure):
    """DLManagedTensor, its DLTensor written out in place."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


# An instance of our own: the types set below must not meet those that other libraries set on ctypes.pythonapi.
_api = ctypes.PyDLL(None)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_set_name = _api.PyCapsule_SetName
_set_name.restype = ctypes.c_int
_set_name.argtypes = (ctypes.py_object, ctypes.c_char_p)

_call_deleter = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p
)  # without the GIL: deleters of other libraries take it if needed


class _Holder:
    """The base of an array over memory that something else owns."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, dtype: np.dtype, shape: tuple[int, ...], owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def export(tensor: object, memory: np.ndarray, code: int) -> object:
    """Make a capsule over memory, the tensor's, that holds one reference to the tensor while it is in use."""
    wanted = DLPACK[code]
    assert wanted is not None
    if not hasattr(memory, "__dlpack__"):
        return _export_without_numpy(tensor, memory, wanted)
    # numpy refuses to export read-only arrays and, in older versions, bool: it is shown writable unsigned bytes.
    dtype = memory.dtype if code != 1 else np.dtype(np.uint8)
    holder = _Holder(memory.__array_interface__["data"][0], dtype, memory.shape, tensor)
    shared: Any = np.asarray(holder)  # an array by its interface
    capsule: object = shared.__dlpack__()
    managed = _Managed.from_address(_get_pointer(capsule, _FRESH))
    managed.dtype.code, managed.dtype.bits = wanted
    return capsule


class _Owner:
    """Runs the producer's deleter when nothing looks at its memory any more."""

    __slots__ = ("_address",)

    def __init__(self, address: int) -> None:
        self._address = address

    def __del__(self) -> None:
        deleter = _Managed.from_address(self._address).deleter
        if deleter:
            _call_deleter(deleter)(self._address)


def consume(source: Any) -> tuple[int, np.ndarray]:
    """Take over a capsule, or that of an object which makes one: the data type and an array over its memory.

    BF16 comes as 16-bit integers.
    """
    capsule = source
    if type(source).__name__ != "PyCapsule":
        capsule = _ask(source)
    if not _is_valid(capsule, _FRESH):
        raise TritonModelException("DLPack capsule is not usable: it has been consumed or holds no tensor.")
    address = _get_pointer(capsule, _FRESH)
    managed = _Managed.from_address(address)
    if managed.device_type == _CUDA:
        raise _no_gpu()
    if managed.device_type not in (_CPU, _CUDA_HOST):
        raise _unknown_device(managed.device_type)
    shape = tuple(managed.shape[: managed.ndim]) if managed.ndim else ()
    _check_layout(managed, shape)
    code = _triton_code(managed.dtype)
    dtype = STORAGE[code]
    assert dtype is not None
    _set_name(capsule, _USED)
    owner = _Owner(address)
    if 0 in shape:
        return code, np.empty(shape, dtype)
    holder = _Holder(managed.data + managed.byte_offset, dtype, shape, owner)
    return code, np.asarray(holder)


def _ask(source: Any) -> object:
    """Have an object make its capsule, with Triton's texts for those that cannot."""
    if not (hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__")):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule         "
            "or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    device = source.__dlpack_device__()[0]
    if device == _CUDA:
        raise _no_gpu()
    if device not in (_CPU, _CUDA_HOST):
        raise _unknown_device(device)
    capsule: object = source.__dlpack__(stream=None)
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"Object of type '{type(capsule).__name__}' is not an instance of 'capsule'")
    return capsule


def _no_gpu() -> TritonModelException:
    return TritonModelException(
        "DLPack capsule passed pointer to memory allocated on GPU device,           when GPU is not available"
    )


def _unknown_device(device: int) -> TritonModelException:
    return TritonModelException(f"DLDevice type {int(device)} is not support by Python backend.")


def _check_layout(managed: _Managed, shape: tuple[int, ...]) -> None:
    """Refuse all but C order. Triton lets an outermost stride pass that leaves gaps, and misreads the tensor."""
    if not managed.strides:
        return
    expected = 1
    for axis in reversed(range(len(shape))):
        # As in Triton, an empty slice of a larger tensor counts as not contiguous, except along its first axis.
        if managed.strides[axis] != expected and shape[axis] != 1 and not (axis == 0 and shape[0] == 0):
            raise TritonModelException(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
                "supported."
            )
        expected *= shape[axis]


def _triton_code(dtype: _DataType) -> int:
    if dtype.code > 6:
        raise TritonModelException(f'DType code "{dtype.code}" is not supported.')
    if dtype.code == _BFLOAT and dtype.bits != 16:
        raise TritonModelException(f"Expected BF16 tensor to have 16 bits, but had: {dtype.bits}")
    code = FROM_DLPACK.get((dtype.code, dtype.bits)) if dtype.lanes == 1 else None
    if code is None:
        raise TritonModelException("Dtype is invalid.")
    return code


# The capsule for numpy before 1.22. Its destructor is Python, which must not run while an exception is on its way:
# a capsule that dies unconsumed at such a moment turns that exception into a SystemError.

_exported: dict[int, tuple[object, ...]] = {}  # what must live, by the address of the structure


def _forget(address: int) -> None:
    _exported.pop(address, None)


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)


# The capsule is dying: its address is passed on without ever becoming a Python reference.
_is_valid_dying = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_get_pointer_dying = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _forget_dying(capsule: int) -> None:
    if _is_valid_dying(capsule, _FRESH):
        _exported.pop(_get_pointer_dying(capsule, _FRESH), None)


_destroy = _Destructor(_forget_dying)

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)


def _export_without_numpy(tensor: object, memory: np.ndarray, wanted: tuple[int, int]) -> object:
    shape = (ctypes.c_int64 * memory.ndim)(*memory.shape)
    managed = _Managed(
        data=memory.__array_interface__["data"][0],
        device_type=_CPU,
        device_id=0,
        ndim=memory.ndim,
        dtype=_DataType(wanted[0], wanted[1], 1),
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        deleter=ctypes.cast(_release, ctypes.c_void_p),
    )
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, tensor)
    capsule: object = _new_capsule(address, _FRESH, _destroy)
    return capsule
