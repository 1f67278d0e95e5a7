"""Measures devices through NVML. Unsupported values are left out of the sample."""

import ctypes
from typing import Any, Dict, Optional


class NvmlError(Exception):
    """NVML is missing or does not initialise."""


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Memory2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
    ]  # fmt: skip


_POWERS = (("power", "nvmlDeviceGetPowerUsage"), ("power_limit", "nvmlDeviceGetPowerManagementLimit"))
_MEMORY_2 = ctypes.sizeof(_Memory2) | 2 << 24  # the version for NVML: the size, with the number above it


class Nvml:
    """The initialised library."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlError(f"load libnvidia-ml.so.1: {error}") from error
        result = self._call("nvmlInit_v2")
        if result != 0:
            raise NvmlError(f"nvmlInit_v2: {self._text(result)}")
        self._handles: Dict[str, ctypes.c_void_p] = {}

    def sample(self, uuid: str, bus: str) -> Dict[str, float]:
        """Return the current values of a device: shares of 1, bytes, watts, joules."""
        handle = self._handles.get(uuid) or self._find(uuid, bus)
        if handle is None:
            return {}
        self._handles[uuid] = handle
        sample: Dict[str, float] = {}
        self._utilization(sample, handle)
        self._memory(sample, handle)
        for key, function in _POWERS:
            milliwatts = ctypes.c_uint()
            if self._call(function, handle, ctypes.byref(milliwatts)) == 0:
                sample[key] = milliwatts.value / 1000
        millijoules = ctypes.c_ulonglong()
        if self._call("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(millijoules)) == 0:
            sample["energy"] = millijoules.value / 1000
        return sample

    def _utilization(self, sample: Dict[str, float], handle: ctypes.c_void_p) -> None:
        rates = _Utilization()
        if self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates)) == 0:
            sample["utilization"] = rates.gpu / 100

    def _memory(self, sample: Dict[str, float], handle: ctypes.c_void_p) -> None:
        """Memory in use. The newer function excludes the driver's own memory."""
        newer = _Memory2(version=_MEMORY_2)
        older = _Memory()
        if self._call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(newer)) == 0:
            sample["memory_total"], sample["memory_used"] = newer.total, newer.used
        elif self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(older)) == 0:
            sample["memory_total"], sample["memory_used"] = older.total, older.used

    def _find(self, uuid: str, bus: str) -> Optional[ctypes.c_void_p]:
        """Return the handle of a device.

        NVML ignores CUDA_VISIBLE_DEVICES, so numbers would not match.
        """
        handle = ctypes.c_void_p()
        names = (uuid, "MIG-" + uuid[len("GPU-") :])
        if any(self._call("nvmlDeviceGetHandleByUUID", n.encode(), ctypes.byref(handle)) == 0 for n in names):
            return handle
        if bus and self._call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), ctypes.byref(handle)) == 0:
            return handle
        return None

    def _call(self, name: str, *args: Any) -> int:
        """Call a function.

        Returns an nvmlReturn_t: 0 for success, -1 if the function is missing.
        """
        if not hasattr(self._library, name):
            return -1
        return int(getattr(self._library, name)(*args))

    def _text(self, result: int) -> str:
        if not hasattr(self._library, "nvmlErrorString"):
            return f"error {result}"
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        return str(self._library.nvmlErrorString(ctypes.c_int(result)).decode("utf-8", "replace"))
