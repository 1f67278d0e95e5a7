"""Tensors from and to other libraries through DLPack, on the CPU and on CUDA devices.

Export. If possible (numpy 1.22), numpy makes the capsule, from an array whose base holds the
Tensor. Its destructor and deleter are then C code, which may run at any time, even while an
exception propagates. Properties that numpy cannot express (bool in older versions, BF16, device
memory) are written into the structure afterwards. Older versions of numpy use a capsule made here.

Import. The capsule is renamed, and the producer's deleter runs once, in the thread that releases
the last view or the tensor. Before it is renamed, the capsule belongs to the producer, whose
destructor releases it if it is rejected.

Order. A producer on a device is given our private stream and makes it wait for the producer's work;
then we wait for the stream. A bare capsule says nothing about order: its creator has ensured it, or
its work is in the legacy default stream.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import cuda
from .datatypes import DLPACK, FROM_DLPACK, STORAGE
from .error import TritonModelException
from .memory import DeviceMemory

_CPU = 1
_CUDA = 2
_CUDA_HOST = 3

_FRESH = b"dltensor"
_USED = b"used_dltensor"  # at module level because capsules keep the pointer
_FRESH_VERSIONED = b"dltensor_versioned"
_USED_VERSIONED = b"used_dltensor_versioned"
_VERSION = (1, 0)  # the newest known version; all of major version 1 share the structure

_BFLOAT = 4


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


_TENSOR = (
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("dtype", _DataType),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
)


class _Managed(ctypes.Structure):
    """DLManagedTensor, with its DLTensor inline."""

    _fields_ = (*_TENSOR, ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, with its DLTensor inline.

    Other major versions differ after the deleter.
    """

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        *_TENSOR,
    )


# A separate instance: types set below must not collide with types that other libraries set on
# ctypes.pythonapi.
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
)  # without the GIL: deleters of other libraries acquire it if needed


class _Holder:
    """The base of an array over memory owned by another object."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(
        self,
        address: int,
        dtype: np.dtype,
        shape: tuple[int, ...],
        owner: object,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "strides": strides,
            "version": 3,
        }


_stand_in = ctypes.c_uint64()
_STAND_IN = ctypes.addressof(_stand_in)


def export(tensor: object, memory: np.ndarray, code: int) -> object:
    """Make a capsule over the tensor's memory. It holds a reference to the tensor while in use."""
    wanted = DLPACK[code]
    assert wanted is not None
    if not hasattr(memory, "__dlpack__"):
        return _export_without_numpy(tensor, memory, wanted)
    # numpy does not export read-only arrays or, in older versions, bool: it sees writable uint8.
    dtype = memory.dtype if code != 1 else np.dtype(np.uint8)
    holder = _Holder(memory.__array_interface__["data"][0], dtype, memory.shape, tensor)
    shared: Any = np.asarray(holder)  # through __array_interface__
    capsule: object = shared.__dlpack__()
    managed = _Managed.from_address(_get_pointer(capsule, _FRESH))
    managed.dtype.code, managed.dtype.bits = wanted
    return capsule


def export_device(tensor: object, memory: DeviceMemory, shape: tuple[int, ...], code: int) -> object:
    """Make a capsule over memory of a device, like `export`."""
    wanted = DLPACK[code]
    assert wanted is not None
    # For numpy, an array of this shape whose elements all are one byte on the host. No consumer
    # sees it.
    holder = _Holder(_STAND_IN, np.dtype(np.uint8), shape, tensor, (0,) * len(shape))
    shared: Any = np.asarray(holder)
    if hasattr(shared, "__dlpack__"):
        capsule: object = shared.__dlpack__()
    else:
        capsule = _export_without_numpy(tensor, shared, wanted)
    managed = _Managed.from_address(_get_pointer(capsule, _FRESH))
    managed.data = memory.address
    managed.device_type, managed.device_id = _CUDA, memory.device
    managed.strides = None
    managed.dtype.code, managed.dtype.bits = wanted
    return capsule


class _Owner:
    """Runs the producer's deleter when nothing references its memory any more."""

    __slots__ = ("_address", "_forks", "_form")

    def __init__(self, address: int, form: type[_Managed | _Versioned], forks: int = -1) -> None:
        self._address = address
        self._form: Any = form
        self._forks = forks  # identifies the only process that may run it; -1 for any

    # Names are bound as defaults: during interpreter shutdown the module's names may be gone.
    def __del__(self, _call: Any = _call_deleter, _now: list[int] = cuda.forks) -> None:
        if self._forks >= 0 and self._forks != _now[0]:
            return  # a fork of the model's process, where CUDA must not be called
        deleter = self._form.from_address(self._address).deleter
        if deleter:
            _call(deleter)(self._address)


def consume(source: Any) -> tuple[int, tuple[int, ...], np.ndarray | DeviceMemory]:
    """Take over a capsule, or one that an object makes. Returns data type, shape and memory.

    CPU memory is returned as an array, of 16-bit integers for BF16.
    """
    capsule = source
    if type(source).__name__ != "PyCapsule":
        capsule = _ask(source)
    form: Any = _Managed
    fresh, used = _FRESH, _USED
    if _is_valid(capsule, _FRESH_VERSIONED):
        form, fresh, used = _Versioned, _FRESH_VERSIONED, _USED_VERSIONED
    elif not _is_valid(capsule, _FRESH):
        raise TritonModelException("DLPack capsule is not usable: it has been consumed or holds no tensor.")
    address = _get_pointer(capsule, fresh)
    managed = form.from_address(address)
    if form is _Versioned and managed.major != _VERSION[0]:
        raise TritonModelException(
            f"DLPack capsule is of version {managed.major}.{managed.minor}, want {_VERSION[0]}, or one without version."
        )
    on_device = managed.device_type == _CUDA
    if not on_device and managed.device_type not in (_CPU, _CUDA_HOST):
        raise _unknown_device(managed.device_type)
    if on_device:
        _device(managed.device_id)
    shape = tuple(managed.shape[: managed.ndim]) if managed.ndim else ()
    _check_layout(managed, shape)
    code = _triton_code(managed.dtype)
    dtype = STORAGE[code]
    assert dtype is not None
    _set_name(capsule, used)
    at = (managed.data or 0) + managed.byte_offset
    if on_device:
        size = dtype.itemsize
        for dimension in shape:
            size *= dimension
        return code, shape, DeviceMemory(managed.device_id, at, size, _Owner(address, form, cuda.forks[0]))
    owner = _Owner(address, form)
    if 0 in shape:
        return code, shape, np.empty(shape, dtype)
    return code, shape, np.asarray(_Holder(at, dtype, shape, owner))


def _ask(source: Any) -> object:
    """Request a capsule from an object, with Triton's error texts."""
    if not (hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__")):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule         "
            "or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    kind, number = source.__dlpack_device__()
    if kind == _CUDA:
        capsule = _ask_on_device(source, _device(int(number)))
    elif kind in (_CPU, _CUDA_HOST):
        capsule, _ = _call(source, None)
    else:
        raise _unknown_device(kind)
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"Object of type '{type(capsule).__name__}' is not an instance of 'capsule'")
    return capsule


def _ask_on_device(source: Any, device: cuda.Device) -> object:
    """Request a capsule from an object on a device, and wait until its bytes are written."""
    try:
        stream = device.stream()
    except cuda.CudaError as error:
        raise TritonModelException("Failed to create a CUDA stream for a DLPack call.") from error
    try:
        device.__enter__()
    except cuda.CudaError as error:
        raise TritonModelException("Failed to get current CUDA device id.") from error
    try:
        capsule, ordered = _call(source, stream)
        try:
            if ordered:
                device.call("cuStreamSynchronize", stream)
            else:
                device.call("cuCtxSynchronize")
        except cuda.CudaError as error:
            raise TritonModelException(f"Failed to synchronize CUDA device with id {device.number}") from error
    finally:
        device.__exit__()
    return capsule


def _call(source: Any, stream: int | None) -> tuple[Any, bool]:
    """Call `__dlpack__` with the arguments that the producer supports.

    Returns the capsule, and whether the producer was told the stream. Only versioned capsules may
    have read-only memory. Calling is the only way to detect the supported arguments.
    """
    try:
        return source.__dlpack__(stream=stream, max_version=_VERSION), True
    except TypeError:
        pass
    try:
        return source.__dlpack__(stream=stream), True
    except TypeError:
        pass
    return source.__dlpack__(), False


def _device(number: int) -> cuda.Device:
    """Return the device of a tensor, or raise Triton's error for a device that is not available."""
    try:
        return cuda.device(number)
    except cuda.Forked as error:
        raise TritonModelException(str(error)) from None
    except cuda.Unavailable as error:
        raise TritonModelException(
            "DLPack capsule passed pointer to memory allocated on GPU device,           when GPU is not available"
        ) from error
    except cuda.CudaError as error:
        raise TritonModelException("Failed to create a CUDA stream for a DLPack call.") from error


def _unknown_device(device: int) -> TritonModelException:
    return TritonModelException(f"DLDevice type {int(device)} is not support by Python backend.")


def _check_layout(managed: Any, shape: tuple[int, ...]) -> None:
    """Reject layouts other than C order. Triton misreads gaps in the first axis."""
    if not managed.strides:
        return
    expected = 1
    for axis in reversed(range(len(shape))):
        # As in Triton, an empty slice of a larger tensor is not contiguous, except for its first
        # axis.
        if managed.strides[axis] != expected and shape[axis] != 1 and not (axis == 0 and 0 in shape):
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


# The capsule for numpy before 1.22. Its destructor is Python code, which must not run while an
# exception propagates: a capsule that is destroyed unconsumed at that time turns the exception into
# a SystemError.

_exported: dict[int, tuple[object, ...]] = {}  # objects to keep alive, by the address of the structure


def _forget(address: int) -> None:
    _exported.pop(address, None)


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)


# The capsule is being destroyed: its address is passed without creating a Python reference.
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
