"""Enumerates CUDA devices through the driver's API. Creates no contexts and uses no device memory.

It shares no code with c_python_backend_utils.cuda, which binds the driver for tensors. That package
needs numpy, which this process, run without the user's packages, does not see. It can also be
installed without the server, so common code cannot be here either. Their requirements differ too.
Here, a missing driver function is reported when it is called, and texts name functions, for the
log. There, all functions are bound at once because each copy calls them, and texts are the driver's
own, for clients.
"""

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

# CUdevice_attribute
_MAJOR = 75
_MINOR = 76


class CudaError(Exception):
    """The driver is missing, or a call failed with a code and the driver's text as `reason`."""

    def __init__(self, text: str, code: int = 0, reason: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.no_device = code == _NO_DEVICE  # the driver works but sees no device
        self.reason = reason


class Device(NamedTuple):
    """A device as visible to this process, in the order set by CUDA_VISIBLE_DEVICES."""

    number: int
    name: str
    uuid: str  # "GPU-…"
    bus: str  # "0000:17:00.0", "" if unknown
    memory: int  # bytes
    capability: Tuple[int, int]

    def told(self) -> Dict[str, Any]:
        """Return the device's description for the server."""
        major, minor = self.capability
        return {
            "number": self.number, "name": self.name, "uuid": self.uuid, "memory": self.memory,
            "major": major, "minor": minor,
        }  # fmt: skip


def devices() -> List[Device]:
    """Return all devices, in the driver's order."""
    found = driver()
    return [found.device(number) for number in range(found.count())]


def driver() -> "Driver":
    """Return the initialised driver."""
    try:
        found = Driver(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        raise CudaError(f"load libcuda.so.1: {error}") from error
    found.call("cuInit", ctypes.c_uint(0))
    return found


class Driver:
    """The driver's API. Creates no context by itself."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def count(self) -> int:
        """Return the number of devices."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def find(self, uuid: str) -> ctypes.c_int:
        """Return the device with a UUID, given as 32 hexadecimal digits."""
        for number in range(self.count()):
            handle = ctypes.c_int()
            self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(number))
            if self._uuid(handle).replace("-", "")[3:] == uuid:
                return handle
        raise CudaError(f"no device has the UUID {uuid}")

    def uuid(self, number: int) -> str:
        """Return the UUID of a device, as 32 hexadecimal digits."""
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(number))
        return self._uuid(handle).replace("-", "")[3:]

    def device(self, number: int) -> Device:
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(number))
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, ctypes.c_int(len(name)), handle)
        memory = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
        capability = self._attribute(_MAJOR, handle), self._attribute(_MINOR, handle)
        text = name.value.decode("utf-8", "replace")
        return Device(number, text, self._uuid(handle), self._bus(handle), memory.value, capability)

    def _attribute(self, which: int, handle: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), handle)
        return value.value

    def _uuid(self, handle: ctypes.c_int) -> str:
        """Return the UUID.

        For a part of a device (MIG), the older function would return the device's.
        """
        uuid = (ctypes.c_ubyte * 16)()
        name = "cuDeviceGetUuid_v2" if self._has("cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        self.call(name, ctypes.byref(uuid), handle)
        text = bytes(uuid).hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def _bus(self, handle: ctypes.c_int) -> str:
        bus = ctypes.create_string_buffer(32)
        if not self._has("cuDeviceGetPCIBusId"):
            return ""
        try:
            self.call("cuDeviceGetPCIBusId", bus, ctypes.c_int(len(bus)), handle)
        except CudaError:
            return ""  # only used if NVML does not know the UUID
        return bus.value.decode("ascii", "replace")

    def _has(self, name: str) -> bool:
        return hasattr(self._library, name)

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the driver. All return a CUresult, which is 0 for success."""
        if not self._has(name):
            raise CudaError(f"libcuda.so.1 has no function {name}: the driver is too old")
        result = getattr(self._library, name)(*args)
        if result != 0:
            reason = self._word("cuGetErrorString", result) or ""
            raise CudaError(f"{name}: {self._text(result)}", result, reason)

    def _text(self, result: int) -> str:
        name, text = self._word("cuGetErrorName", result), self._word("cuGetErrorString", result)
        return f"{name or f'error {result}'} ({text or 'the driver has no text for it'})"

    def _word(self, name: str, result: int) -> Optional[str]:
        word = ctypes.c_char_p()
        if not self._has(name) or getattr(self._library, name)(ctypes.c_int(result), ctypes.byref(word)) != 0:
            return None
        return word.value.decode("utf-8", "replace") if word.value else None
