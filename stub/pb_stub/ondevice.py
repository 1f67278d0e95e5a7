"""Tensors that stay on a device: lent by this stub (devicepool), and lent to it (deviceloans).

OnDevice combines the two for the rest of the stub, which creates it on first use.
"""

from __future__ import annotations

from c_python_backend_utils import cuda
from c_python_backend_utils.memory import DeviceMemory

from .channel import Channel
from .deviceloans import Borrowings
from .devicepool import DevicePool
from .pool import Pool, PoolExhausted


class OnDevice:
    """Both directions, for the rest of the stub."""

    def __init__(self, channel: Channel, pool: Pool) -> None:
        self.pool = DevicePool(channel, pool)
        self._borrowings = Borrowings(channel, self.pool)
        self.learn = self._borrowings.learn
        self.forget = self._borrowings.forget
        self.borrowed = self._borrowings.memory
        self.opening = self._borrowings.opening
        self.patience = self.pool.patience
        self._channel = channel

    def lend(self, memory: DeviceMemory) -> tuple[int, int, int] | None:
        """Copy memory to a place where it can be lent: number of the allocation, offset and ticket.

        Returns None if that fails: the bytes then go through the host, which reports an error if
        they are not available. Raises DeviceError if this is already known.
        """
        try:
            block = self.pool.copy(memory)
        except (cuda.CudaError, PoolExhausted):
            return None
        return block.number, block.offset, self.pool.lend(block)
