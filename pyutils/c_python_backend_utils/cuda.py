"""The CUDA driver through ctypes, limited to the functions that tensors on devices need.

    libcuda.so.1 ─▶ cuInit ─▶ the primary context of a device ─▶ a private stream in it

Each step is taken when the first tensor on a device needs it: a process whose model computes on the
CPU never loads the driver and can be forked. The primary context of a device is shared with torch,
cupy and jax. Each call here makes it the calling thread's current context and then restores the
previous one.

Order: work that a library has queued in its own streams is complete once the library was asked for
a capsule and the private stream has been synchronised. Copies are queued in the legacy default
stream, after everything queued there.

A process that was forked after cuInit cannot use the driver, which may crash there, so it is not
called.

Lock: `_mu` is held while the driver and devices are created, and only calls for that purpose are
made under it. It is reentrant because destructors may run at any time.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

_LIBRARY = "libcuda.so.1"

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: the stream and the legacy default stream do not wait for each other

#: The result of cuInit if a parent of this process, perhaps through torch, initialized the driver,
#: and also without devices.
_NOT_INITIALIZED = 3
_NO_DEVICE = 100

_IS_MANAGED = 8  # CU_POINTER_ATTRIBUTE_...
_DEVICE_ORDINAL = 9
_IS_LEGACY_IPC_CAPABLE = 10

_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class IpcHandle(ctypes.Structure):
    """A handle by which other processes open an allocation."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoD_v2": (c_uint64, c_uint64, c_size_t),
    "cuMemcpyPeer": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuIpcGetMemHandle": (c_void_p, c_uint64),
    "cuIpcOpenMemHandle_v2": (POINTER(c_uint64), IpcHandle, c_uint),
    "cuIpcCloseMemHandle": (c_uint64,),
    "cuMemGetAddressRange_v2": (POINTER(c_uint64), POINTER(c_size_t), c_uint64),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
}

_INVALID_HANDLE = 400

_INVALID_CONTEXT = 201

#: Errors of cuIpcOpenMemHandle for a bad handle: its process has exited, or is this process.
_OF_HANDLES = (_INVALID_HANDLE, _INVALID_CONTEXT)

#: Errors of a context that the model has destroyed, perhaps with cudaDeviceReset. It is retained
#: again next time; its memory is lost.
_CONTEXT_GONE = (_INVALID_CONTEXT, _INVALID_HANDLE, 709)  # CUDA_ERROR_CONTEXT_IS_DESTROYED


_popped = c_void_p()
_POPPED = ctypes.addressof(_popped)  # where the driver writes the context that it pops; never read


class CudaError(Exception):
    """A call of the driver failed. The text is the driver's, such as "out of memory"."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(text)
        self.function = function
        self.code = code


class Unavailable(CudaError):
    """There is no driver, or it has no device, or not the requested one."""

    def __init__(self, text: str, function: str = "cuInit", code: int = 0) -> None:
        super().__init__(function, code, text)

    def copy(self) -> Unavailable:
        """Return a copy to raise: raising the same exception keeps old frames and their tensors."""
        return Unavailable(str(self), self.function, self.code)


class Forked(CudaError):
    """The driver was in use when this process was forked."""

    def __init__(self) -> None:
        text = (
            "CUDA was in use when this process was forked, and does not work in the fork: use multiprocessing's start "
            "method 'spawn'"
        )
        super().__init__("cuInit", 3, text)


class Range(NamedTuple):
    """The allocation that contains an address."""

    base: int
    size: int
    device: int
    managed: bool
    exportable: bool  # by cuIpcGetMemHandle


class Driver:
    """The initialized driver of this process."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
            for name, types in _FUNCTIONS.items():
                function = getattr(self._library, name)
                function.argtypes = types
                function.restype = c_int
        except (OSError, AttributeError) as error:
            raise Unavailable(str(error)) from None
        code = self._library.cuInit(0)
        if code == _NOT_INITIALIZED:
            raise Forked
        if code == _NO_DEVICE:
            raise Unavailable(self._text(code), "cuInit", code)
        if code:  # may be temporary, so it is tried again
            raise CudaError("cuInit", code, self._text(code))
        count = c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.count = count.value
        self.devices: dict[int, Device] = {}
        self._ident = getattr(self._library, "cuCtxGetId", None)
        if self._ident is not None:
            self._ident.argtypes = (c_void_p, POINTER(c_uint64))
            self._ident.restype = c_int
        # Called for each copy, so it is looked up once.
        self.push = self._library.cuCtxPushCurrent_v2
        self.pop = self._library.cuCtxPopCurrent_v2
        self.to_host = self._library.cuMemcpyDtoH_v2

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function without the GIL; CudaError if it fails."""
        code = getattr(self._library, function)(*arguments)
        if code:
            raise self.error(function, code)

    def error(self, function: str, code: int) -> CudaError:
        return CudaError(function, code, self._text(code))

    def life_of(self, context: c_void_p) -> tuple[int, int]:
        """Return an error code or 0, and a context number unique in this process.

        Before CUDA 12 the number is 0.
        """
        if self._ident is None:
            return 0, 0
        ident = c_uint64()
        code: int = self._ident(context, ctypes.byref(ident))
        return code, ident.value

    def uuid(self, number: int) -> bytes:
        """Return the UUID of a device."""
        handle = c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), number)
        raw = ctypes.create_string_buffer(16)
        # The older function returns the UUID of the whole device for a part of it (MIG).
        function = "cuDeviceGetUuid_v2" if hasattr(self._library, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        self.call(function, raw, handle)
        return raw.raw

    def _text(self, code: int) -> str:
        text = c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return text.value.decode("utf-8", "replace") if text.value else f"error {code}"


class Device:
    """A device with its primary context, by the device's number in this process."""

    def __init__(self, driver: Driver, number: int) -> None:
        handle = c_int()
        if not 0 <= number < driver.count:
            raise Unavailable(f"there is no device {number}, but {driver.count}", "cuDeviceGet", 101)
        driver.call("cuDeviceGet", ctypes.byref(handle), number)
        context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self.number = number
        self.context = context
        #: Whether the context was destroyed, with all memory allocated here. Another Device has the
        #: new context.
        self.gone = False
        self._driver = driver
        self._stream: int = 0
        self._life = driver.life_of(context)[1]

    def check(self) -> None:
        """Detect that another library has reset and recreated the context at the same address."""
        if not self.gone and _driver is self._driver:  # a forked process does not call the driver
            code, life = self._driver.life_of(self.context)
            if code:
                self._failed(code)
            elif life != self._life:
                self._failed(_INVALID_CONTEXT)
        if self.gone:  # the old addresses may be in use by others
            raise self._driver.error("cuCtxGetId", _INVALID_CONTEXT)

    def __enter__(self) -> Device:
        """Make the context current in this thread."""
        if self.gone:
            raise self._driver.error("cuCtxPushCurrent_v2", _INVALID_CONTEXT)
        self.call("cuCtxPushCurrent_v2", self.context)
        return self

    def __exit__(self, *_: object) -> None:
        # A failure cannot be handled: only the driver knows the previous context.
        self._driver.pop(_POPPED)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function, inside `with` if it needs a current context."""
        try:
            self._driver.call(function, *arguments)
        except CudaError as error:
            self._failed(error.code)
            raise

    def _failed(self, code: int) -> None:
        if code in _CONTEXT_GONE and not self.gone:
            self.gone = True
            self._driver.devices.pop(self.number, None)

    def stream(self) -> int:
        """Return the private stream, created on first use."""
        with _mu:
            if not self._stream:
                stream = c_void_p()
                with self:
                    self.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
                self._stream = stream.value or 0
            return self._stream

    # Copies. The bytes have arrived when they return.

    def copy_to_host(self, to: int, source: int, size: int) -> None:
        here = self._driver
        code = _INVALID_CONTEXT if self.gone else here.push(self.context)
        if not code:
            try:
                code = here.to_host(to, source, size)
            finally:  # a signal handler may raise
                here.pop(_POPPED)
        if code:
            self._failed(code)
            raise here.error("cuMemcpyDtoH_v2", code)

    def copy_from_host(self, to: int, source: int, size: int) -> None:
        with self:
            self.call("cuMemcpyHtoD_v2", to, source, size)
            self.call("cuStreamSynchronize", 0)  # the last bytes may still be in transit

    def copy(self, to: int, source: int, size: int, device: Device | None = None) -> None:
        """Copy within this device, or to it from another device."""
        with self:
            if device is None or device.number == self.number:
                self.call("cuMemcpyDtoD_v2", to, source, size)
            else:
                self.call("cuMemcpyPeer", to, self.context, source, device.context, size)
            self.call("cuStreamSynchronize", 0)

    def synchronize_all(self) -> None:
        """Wait for the work of this process in all streams of the device."""
        with self:
            self.call("cuCtxSynchronize")

    # Memory shared between processes. Addresses are those of whole allocations.

    def allocate(self, size: int) -> int:
        """Make an allocation that other processes can open."""
        address = c_uint64()
        with self:
            self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        with self:
            self.call("cuMemFree_v2", address)

    def handle_of(self, address: int) -> bytes:
        """Return the handle by which another process opens an allocation of this one."""
        handle = IpcHandle()
        with self:
            self.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle.bytes)

    def open(self, handle: bytes) -> int:
        """Open an allocation of another process. Each opening needs its own close."""
        address = c_uint64()
        with self:
            opened = IpcHandle.from_buffer_copy(handle)
            try:
                self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, _LAZY_PEER_ACCESS)
            except CudaError as error:
                if error.code not in _OF_HANDLES:
                    self._failed(error.code)
                else:
                    self.call("cuCtxSynchronize")  # which says so if it is our context
                raise
        return address.value

    def close(self, address: int) -> None:
        with self:
            self.call("cuIpcCloseMemHandle", address)

    def uuid(self) -> bytes:
        """Return the device's UUID, 16 bytes, which is the same in all processes."""
        return self._driver.uuid(self.number)

    def room_at(self, address: int) -> int:
        """Return the number of bytes from an address to the end of its allocation."""
        base, size = c_uint64(), c_size_t()
        with self:
            self.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
        return base.value + size.value - address

    def range_of(self, address: int) -> Range:
        """Return the allocation that contains an address."""
        base, size = c_uint64(), c_size_t()
        with self:
            self.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
            number = self._attribute(_DEVICE_ORDINAL, address)
            managed = self._attribute(_IS_MANAGED, address)
            exportable = self._attribute(_IS_LEGACY_IPC_CAPABLE, address)
        return Range(base.value, size.value, number, bool(managed), bool(exportable))

    def _attribute(self, attribute: int, address: int) -> int:
        value = c_int()
        self.call("cuPointerGetAttribute", ctypes.byref(value), attribute, address)
        return value.value


_mu = threading.RLock()

#: The number of forks between the process that loaded this module and this one. It identifies the
#: process without a system call for each tensor.
forks = [0]

_driver: Driver | Unavailable | Forked | None = None  # an error if this process has no driver


def driver() -> Driver:
    """Return the driver.

    Raises Unavailable without a driver, Forked if this process cannot use it, CudaError if it
    fails.
    """
    global _driver  # noqa: PLW0603  # one driver in a process
    found = _driver
    if found is None:
        with _mu:
            found = _driver
            if found is None:
                try:
                    found = Driver()
                except Unavailable as error:
                    found = error.copy()
                except Forked:
                    found = Forked()
                _driver = found
    if isinstance(found, Unavailable):
        raise found.copy()
    if isinstance(found, Forked):
        raise Forked
    return found


def device(number: int) -> Device:
    """Return a device with its context; Unavailable if no device has this number."""
    here = driver()
    found = here.devices.get(number)
    if found is not None:
        try:
            found.check()
        except CudaError:
            found = None
    if found is None:
        with _mu:
            found = here.devices.get(number)
            if found is None:
                found = here.devices[number] = Device(here, number)
    return found


def device_of(uuid: bytes) -> Device:
    """Return the device with a UUID; Unavailable if this process does not see it."""
    here = driver()
    for number in range(here.count):
        if here.uuid(number) == uuid:
            return device(number)
    raise Unavailable(f"this process does not see device {uuid.hex()}", "cuDeviceGetUuid", 101)


def met(uuid: bytes) -> bool:
    """Return whether this process has a context of the device with a UUID. Loads no driver."""
    here = _driver
    return isinstance(here, Driver) and any(here.uuid(number) == uuid for number in list(here.devices))


def _forget() -> None:
    """Reset a process that was just forked: a lock held by another thread would stay locked."""
    global _driver, _mu  # noqa: PLW0603
    _mu = threading.RLock()
    forks[0] += 1
    if isinstance(_driver, Driver):
        _driver = Forked()


os.register_at_fork(after_in_child=_forget)
