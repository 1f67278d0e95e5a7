"""Where tensors lie: the memory that a BLS request prefers, and the free bytes that leak tests look at."""

from __future__ import annotations

from typing import Any, Tuple

from . import runtime
from .binding import MODULE, Bound, BoundEnum, Mismatch, Unmakeable, as_integer, checked, incompatible

_I64 = 2**63 - 1

_SIGNATURE = (
    (
        f"{MODULE}.PreferredMemory(preferred_memory_type: triton::backend::python::PreferredMemory::MemoryType, "
        "preferred_device_id: int = 0)"
    ),
)


class MemoryType(BoundEnum):
    """The kinds of memory; not the numbers of Triton's C interface."""

    __module__ = MODULE
    __slots__ = ()
    names = ("TRITONSERVER_MEMORY_GPU", "TRITONSERVER_MEMORY_CPU")


_members: Any = MemoryType  # it has them by name
TRITONSERVER_MEMORY_GPU: MemoryType = _members.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU: MemoryType = _members.TRITONSERVER_MEMORY_CPU


class PreferredMemory(Bound):
    """Where a BLS request wants its outputs."""

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
    """The memory that a stub has for tensors of its own."""

    __module__ = MODULE
    __slots__ = ()

    def free_memory(self) -> int:
        """Bytes that can still be taken; the same number again once all that was taken has gone."""
        return runtime.current().free_memory()


shared_memory = SharedMemory.__new__(SharedMemory)
