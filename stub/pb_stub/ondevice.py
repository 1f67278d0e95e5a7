"""Tensors that stay on a device: lent by this stub (devicepool), and lent to it (deviceloans).

OnDevice joins the two for the rest of the stub, which makes one at the first need.
"""

from __future__ import annotations

from c_python_backend_utils import cuda
from c_python_backend_utils.memory import DeviceMemory

from .channel import Channel
from .deviceloans import Borrowings
from .devicepool import DevicePool
from .pool import Pool, PoolExhausted


class OnDevice:
    """Both sides, for the rest of the stub."""

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
        """Copy memory to where it can be lent: number of the allocation, offset and ticket.

        None: that cannot be done, and the bytes go by the host, which says why if they cannot be had at all.
        DeviceError if it is known already.
        """
        try:
            block = self.pool.copy(memory)
        except (cuda.CudaError, PoolExhausted):
            return None
        return block.number, block.offset, self.pool.lend(block)
