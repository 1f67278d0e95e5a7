"""A minimal producer of tensors on CUDA devices: the driver through ctypes, and handmade capsules.

Tests use it in their process, and models in stubs, with the fake driver or a real one.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

_driver: list[Any] = []
_count: list[int] = []  # of devices


def driver() -> Any:
    """Return the loaded driver, or load it as programs do."""
    from c_python_backend_utils import cuda

    name = cuda._LIBRARY
    if not _driver or _driver[0]._name != name:
        library = ctypes.CDLL(name)
        for function in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2"):
            getattr(library, function).restype = ctypes.c_int
        library.cuMemcpyHtoD_v2.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
        library.cuMemcpyHtoDAsync_v2.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        library.cuMemcpyDtoH_v2.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)
        library.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
        library.cuCtxPushCurrent_v2.argtypes = (ctypes.c_void_p,)
        library.cuStreamDestroy_v2.argtypes = (ctypes.c_void_p,)
        library.cuEventRecord.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        library.cuEventDestroy_v2.argtypes = (ctypes.c_void_p,)
        library.cuStreamWaitEvent.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
        library.cuStreamSynchronize.argtypes = (ctypes.c_void_p,)
        _driver[:] = [library]
    return _driver[0]


def place(number: int) -> int:
    """Return the device for a number in a test with two devices.

    A real machine may have only one.
    """
    if os.environ.get("NEREID_TEST_DEVICE") != "real":
        return number
    if not _count:
        count = ctypes.c_int()
        check(driver().cuInit(0))
        check(driver().cuDeviceGetCount(ctypes.byref(count)))
        _count.append(count.value)
    return number % _count[0]


def check(code: int) -> None:
    assert code == 0, f"CUDA error {code}"


class Context:
    """The primary context of a device, current inside `with`."""

    def __init__(self, number: int) -> None:
        self.library = library = driver()  # during interpreter shutdown it is not available
        check(library.cuInit(0))
        self._context = ctypes.c_void_p()
        self._before = ctypes.c_void_p()
        check(library.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), number))

    def __enter__(self) -> Context:
        check(self.library.cuCtxPushCurrent_v2(self._context))
        return self

    def __exit__(self, *_: object) -> None:
        check(self.library.cuCtxPopCurrent_v2(ctypes.byref(self._before)))


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


class Managed(ctypes.Structure):
    _fields_ = (*_TENSOR, ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        *_TENSOR,
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.PyDLL(None)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_FRESH = b"dltensor"
_FRESH_VERSIONED = b"dltensor_versioned"

_KINDS = {"b": 6, "u": 1, "i": 0, "f": 2}

#: Objects that must live as long as a capsule, by the address of its structure.
_living: dict[int, tuple[Any, ...]] = {}


class OnDevice:
    """A tensor on a device, with a copy of an array's bytes.

    `capsules` counts created capsules, `deleted` calls of deleters. With `stream`, the bytes are
    written in that stream, perhaps after the constructor has returned.
    """

    def __init__(
        self,
        array: Any,
        device: int = 0,
        *,
        dtype: tuple[int, int, int] | None = None,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
        versioned: bool = False,
        stream: int | None = None,
        device_type: int = 2,
    ) -> None:
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        self.array = array
        self.device = device
        self.device_type = device_type
        self.dtype = dtype or (_KINDS[array.dtype.kind], array.dtype.itemsize * 8, 1)
        self.offset = offset
        self.strides = strides
        self.versioned = versioned
        self.stream = stream
        self.asked: list[dict[str, Any]] = []
        self.capsules = self.deleted = 0
        self.version = (1, 0)
        self.flags = 0
        self.context = Context(device)
        self.address = 0
        if array.nbytes:
            pointer = ctypes.c_uint64()
            with self.context:
                check(driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(array.nbytes + offset)))
                self.address = pointer.value
                self.write(array)

    def write(self, array: np.ndarray) -> None:
        """Write the bytes of an array, in the stream if there is one."""
        self.array = array
        source = array.__array_interface__["data"][0]
        with self.context:
            if self.stream is None:
                check(driver().cuMemcpyHtoD_v2(self.address + self.offset, source, array.nbytes))
            else:
                check(driver().cuMemcpyHtoDAsync_v2(self.address + self.offset, source, array.nbytes, self.stream))

    def free(self) -> None:
        """Free the memory, once."""
        address, self.address = self.address, 0
        if address:
            with self.context:
                check(self.context.library.cuMemFree_v2(address))

    def capsule(self, versioned: bool = False) -> Any:
        """Make another capsule over the memory, which is freed with its last capsule."""
        array = self.array
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*self.strides) if self.strides is not None else None
        deleter = _Deleter(self._delete)
        form: Any = Versioned if versioned else Managed
        managed = form(
            data=self.address or None,
            device_type=self.device_type,
            device_id=self.device,
            ndim=array.ndim,
            dtype=_DataType(*self.dtype),
            shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
            strides=ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)) if strides is not None else None,
            byte_offset=self.offset,
            deleter=ctypes.cast(deleter, ctypes.c_void_p),
        )
        if versioned:
            managed.major, managed.minor = self.version
            managed.flags = self.flags
        at = ctypes.addressof(managed)
        name = _FRESH_VERSIONED if versioned else _FRESH
        # The deleter is kept alive too: a function must not be freed while it runs.
        _living[at] = (managed, shape, strides, deleter, self)
        self.capsules += 1
        return _new(at, name, ctypes.cast(_destroy, ctypes.c_void_p))

    def _delete(self, _at: int) -> None:
        self.deleted += 1
        if self.deleted == self.capsules:
            self.free()

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.asked.append({"stream": stream, "max_version": max_version})
        self.order(stream)
        return self.capsule(self.versioned and max_version is not None)

    def order(self, stream: Any) -> None:
        """Make a stream wait for the work queued in ours."""
        if self.stream is None or stream is None:
            return
        library = driver()
        event = ctypes.c_void_p()
        check(library.cuEventCreate(ctypes.byref(event), 2))
        check(library.cuEventRecord(event, self.stream))
        check(library.cuStreamWaitEvent(stream, event, 0))
        self.event = event.value

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.device


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


def _ended(capsule: int) -> None:
    """The destructor of a capsule that was not consumed."""
    for name, form in ((_FRESH, Managed), (_FRESH_VERSIONED, Versioned)):
        if _is_valid(capsule, name):
            at = _pointer(capsule, name)
            _Deleter(form.from_address(at).deleter)(at)


_destroy = _Destructor(_ended)


class Older(OnDevice):
    """Supports streams, but no newer keyword."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        self.asked.append({"stream": stream})
        self.order(stream)
        return self.capsule()


class Bare(OnDevice):
    """Supports only `__dlpack__()`."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        self.asked.append({})
        return self.capsule()


def current() -> int:
    """Return the current context of this thread, 0 for none."""
    context = ctypes.c_void_p()
    check(driver().cuCtxGetCurrent(ctypes.byref(context)))
    return context.value or 0


def new_stream(device: int = 0, flags: int = 1) -> int:
    """Make a stream, by default one that does not wait for the legacy default stream."""
    stream = ctypes.c_void_p()
    with Context(device):
        check(driver().cuStreamCreate(ctypes.byref(stream), flags))
    return stream.value or 0
