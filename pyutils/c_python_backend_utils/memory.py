"""Memory of tensors: devices, preferred memory of BLS requests, free bytes for leak tests."""

from __future__ import annotations

from typing import Any, Tuple

from . import runtime
from .binding import MODULE, Bound, BoundEnum, Mismatch, Unmakeable, as_integer, checked, incompatible
from .error import TritonModelException

_I64 = 2**63 - 1

_SIGNATURE = (
    (
        f"{MODULE}.PreferredMemory(preferred_memory_type: triton::backend::python::PreferredMemory::MemoryType, "
        "preferred_device_id: int = 0)"
    ),
)


class MemoryType(BoundEnum):
    """The kinds of memory. Their numbers differ from Triton's C API."""

    __module__ = MODULE
    __slots__ = ()
    names = ("TRITONSERVER_MEMORY_GPU", "TRITONSERVER_MEMORY_CPU")


_members: Any = MemoryType  # its members are attributes
TRITONSERVER_MEMORY_GPU: MemoryType = _members.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU: MemoryType = _members.TRITONSERVER_MEMORY_CPU


class PreferredMemory(Bound):
    """The preferred memory for the outputs of a BLS request."""

    __module__ = MODULE
    __slots__ = ("_device", "_kind")

    _device: int
    _kind: int  # a MemoryType, or another number

    def __init__(self, *args: Any, **named: Any) -> None:
        try:
            kind, device = _arguments(*args, **named)
            if not isinstance(kind, MemoryType):
                raise Mismatch
            self._device = as_integer(device, -_I64 - 1, _I64)
        except (Mismatch, TypeError):
            raise incompatible("__init__", _SIGNATURE, args, named) from None
        self._kind = kind.value


def _arguments(preferred_memory_type: object, preferred_device_id: object = 0) -> Tuple[object, object]:
    return preferred_memory_type, preferred_device_id


@checked(free_memory="int")
class SharedMemory(Unmakeable):
    """The memory of a stub for its own tensors."""

    __module__ = MODULE
    __slots__ = ()

    def free_memory(self) -> int:
        """Return the number of free bytes; restored when all allocations are freed."""
        return runtime.current().free_memory()


shared_memory = SharedMemory.__new__(SharedMemory)


class DeviceError(TritonModelException):
    """The bytes of a tensor on a device are not available.

    The text is Triton's, with the driver's reason.
    """


class DeviceMemory:
    """The bytes of one tensor on a CUDA device. Its owner frees them when this object is deleted.

    They may be read while this object lives. Work queued in the legacy default stream comes first.
    """

    __slots__ = ("address", "device", "nbytes", "owner")

    def __init__(self, device: int, address: int, nbytes: int, owner: object) -> None:
        self.device = device  # its number in this process
        self.address = address
        self.nbytes = nbytes
        self.owner = owner

    def copy_to_host(self, to: int) -> None:
        """Copy the bytes to an address of the host and wait. Raises DeviceError."""
        if not self.nbytes:
            return
        from . import cuda  # ctypes is only loaded if needed

        try:
            cuda.device(self.device).copy_to_host(to, self.address, self.nbytes)
        except cuda.CudaError as error:
            raise DeviceError(
                "An error occurred while trying to load GPU buffers in the Python backend stub: "
                f"failed to copy data: {error}"
            ) from error

    def read(self) -> bytes:
        """Copy the bytes to the host."""
        import ctypes

        buffer = (ctypes.c_char * self.nbytes)()
        self.copy_to_host(ctypes.addressof(buffer))
        return buffer.raw
