"""Outputs of BLS requests whose PreferredMemory names a device: they are copied there.

The requesting process copies them into its pool of that device (devicepool), from the host or from
another device. The server only considers a preference for the CPU. BYTES tensors and empty tensors
are always on the host.

If that fails, for example without a driver, an output stays where it is: models check `is_cpu()`.
If there is a driver, this is logged once per device.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np
from c_python_backend_utils import cuda, runtime
from c_python_backend_utils.datatypes import BYTES
from c_python_backend_utils.memory import DeviceError, DeviceMemory
from c_python_backend_utils.tensor import Tensor

from .devicepool import DeviceBlock, DevicePool
from .pool import PoolExhausted

_BYTE = np.dtype(np.uint8)

#: Devices for which the failure was logged. Models may use invalid numbers.
_told: set[int] = set()
_MOST_TOLD = 16


class Brought(DeviceMemory):
    """The bytes of an output in a block of this process."""

    __slots__ = ("_block", "_pool")

    def __init__(self, pool: DevicePool, block: DeviceBlock) -> None:
        super().__init__(block.device.number, block.address, block.size, None)
        self._pool = pool
        self._block = block

    def __del__(self) -> None:
        self._pool.settle(self._block)


def bring(outputs: Iterable[Tensor], number: int, pool: DevicePool) -> None:
    """Copy outputs to the numbered device if possible. The bytes are there when this returns."""
    for tensor in outputs:
        if tensor._code == BYTES or not tensor._size:
            continue
        try:
            device = cuda.device(number)
            data = tensor._data
            if isinstance(data, DeviceMemory):
                if data.device == number:
                    continue
                block = pool.copy(data, device)
            else:
                block = _up(_as_came(tensor), device, pool)
        except (cuda.CudaError, DeviceError, PoolExhausted) as error:
            _tell(number, error)
            continue
        # Its source is released, with its ticket.
        tensor._data = Brought(pool, block)
        tensor._origin = None
        tensor._element = 0


def _as_came(tensor: Tensor) -> np.ndarray:
    """Return the bytes of an output that was received on the host, in place."""
    origin = tensor._origin
    assert origin is not None
    if isinstance(origin, bytes):
        return np.frombuffer(origin, _BYTE, tensor._size, tensor._offset)
    return origin.array(tensor.name(), _BYTE, (tensor._size,))


def _up(array: np.ndarray, device: cuda.Device, pool: DevicePool) -> DeviceBlock:
    block = pool.take(device, array.nbytes)
    device.copy_from_host(block.address, array.__array_interface__["data"][0], array.nbytes)
    return block


def _tell(number: int, error: Exception) -> None:
    none = isinstance(error, cuda.Unavailable) and error.function == "cuInit"
    if none or number in _told or len(_told) >= _MOST_TOLD:
        return
    _told.add(number)
    text = f"outputs that a BLS request prefers on GPU {number} stay where they are: {error}"
    file, line = runtime.caller(0)
    runtime.current().log(runtime.WARNING, file, line, text)
