"""Device memory lent by other processes: the twin of `loans`, for blocks of the host.

A tensor that came is a Borrowed: its allocation is opened when the model first looks, once for all tensors in it, and
closed when the supervisor has said FREED and no tensor is left. If another process reads the bytes too, the model gets
a copy of its own. Before a ticket goes back all work of the context has ended: kernels may still read.

Locks: those of tensors and allocations are entered anew by the thread that has them. Where a signal handler or
destructor may have come in between, it is looked again.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Dict, TypeVar

from c_python_backend_utils import cuda
from c_python_backend_utils.memory import DeviceError, DeviceMemory

from . import messages
from .channel import Channel
from .devicepool import DeviceBlock, DevicePool
from .errors import NotUnderstood
from .pool import PoolExhausted

#: Where a client's memory cannot be opened: it has ended, mostly.
_CLIENTS = (
    "the client that has registered this memory has ended, or freed it, before this instance looked at it: let the "
    "client keep it until each instance has, or set FORCE_CPU_ONLY_INPUT_TENSORS to 'yes', as the server holds the "
    "memory"
)

_T = TypeVar("_T")

#: By ticket: weak references to what clients may change when a response has left.
_Alive = Dict[int, Any]


class Opening:
    """An allocation of another process, opened when it is first looked at. It is closed when this object dies."""

    __slots__ = ("_address", "_device", "_mu", "allocation", "table")

    def __init__(self, table: Borrowings, allocation: messages.Allocation) -> None:
        self.table = table
        self.allocation = allocation
        self._mu = threading.RLock()
        self._device: cuda.Device | None = None
        self._address = 0

    def device(self) -> cuda.Device:
        device = self._device
        if device is not None:
            try:
                device.check()
            except cuda.CudaError:
                with self._mu:  # the context was reset, which has closed its allocations
                    if self._device is device:
                        self._device, self._address = None, 0
                device = None
        if device is None:
            device = self._device = cuda.device_of(self.allocation.uuid)
        return device

    def address(self) -> int:
        """Where the allocation begins; CudaError if it cannot be opened."""
        device = self.device()
        with self._mu:
            if not self._address:
                address = device.open(self.allocation.handle)
                if device.room_at(address) < self.allocation.size:
                    # What its maker has said is not so: a kernel that reads behind it would end our own context.
                    device.close(address)
                    text = f"the allocation has less than the {self.allocation.size} bytes that were announced"
                    raise cuda.CudaError("cuIpcOpenMemHandle_v2", 1, text)
                if self._address:  # a signal handler, or destructor, has been here meanwhile
                    device.close(address)
                else:
                    self._address = address
            return self._address

    def __del__(self) -> None:
        if self._address and self._device is not None and not self.table.channel.foreign:
            try:
                self._device.close(self._address)
            except cuda.CudaError:
                pass  # the device is lost


class _Own:
    """An allocation of this very process, which it cannot open."""

    __slots__ = ("_base", "_device", "allocation")

    def __init__(self, device: cuda.Device, base: int, size: int) -> None:
        self._device = device
        self._base = base
        self.allocation = messages.Allocation(device.number, size, b"", b"")

    def device(self) -> cuda.Device:
        return self._device

    def address(self) -> int:
        self._device.check()
        return self._base


class Borrowed(DeviceMemory):
    """The bytes of a tensor that came, under a ticket. It goes back when this object dies, or has been copied."""

    __slots__ = ("_block", "_mu", "_of", "_offset", "_opened", "_sole", "_table", "_ticket")

    def __init__(self, table: Borrowings, of: Opening | _Own, ticket: int, offset: int, size: int, sole: bool) -> None:
        self.nbytes = size
        self.owner = None
        self._table = table
        self._of = of
        self._ticket: int | None = ticket
        self._offset = offset
        self._sole = sole
        self._opened = False
        self._block: DeviceBlock | None = None
        self._mu = threading.RLock()

    @property
    def device(self) -> int:  # type: ignore[override]
        """The device's number in this process."""
        return _told(self._of.device).number

    @property
    def address(self) -> int:  # type: ignore[override]
        """Where the bytes lie; DeviceError if they cannot be had."""
        with self._mu:
            if self._block is not None:
                return self._block.address
            at = _told(self._of.address) + self._offset
            self._opened = True
            if self._sole:
                return at
            source = DeviceMemory(self._of.device().number, at, self.nbytes, None)
            try:
                block = self._table.pool.copy(source)
            except (cuda.CudaError, PoolExhausted) as error:
                raise DeviceError(f"failed to copy data: {error}") from error
            if self._block is None:  # else a signal handler, or destructor, has been here meanwhile
                self._block = block
            self._give_back()
            return self._block.address

    def _give_back(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is None or self._table.channel.foreign:
            return
        if self._opened:
            try:
                self._of.device().synchronize_all()
            except cuda.CudaError:
                pass  # nothing runs there any more
        self._table.channel.give_back(ticket)

    def __del__(self) -> None:
        self._give_back()
        if self._block is not None:
            self._table.pool.settle(self._block)


class ClientBorrowed(Borrowed):
    """The bytes of a client, its own again after the response: bytes that the model keeps are copied before."""

    __slots__ = ("__weakref__", "_alive", "_lost")

    def __init__(
        self, table: Borrowings, of: Opening | _Own, ticket: int, offset: int, size: int, alive: _Alive
    ) -> None:
        super().__init__(table, of, ticket, offset, size, False)
        self._lost: DeviceError | None = None
        self._alive = alive
        alive[ticket] = weakref.ref(self)

    @property
    def address(self) -> int:  # type: ignore[override]
        if self._lost is not None:
            raise self._lost
        try:
            return super().address
        except DeviceError as error:
            if self._opened:
                raise
            raise DeviceError(f"{error}; {_CLIENTS}") from error

    def lies_in(self, begin: int, size: int) -> bool:
        """Whether a byte of a range of addresses is one of these, and was not copied yet."""
        if self._block is not None or self._lost is not None:
            return False
        try:
            first = self._of.address() + self._offset
        except cuda.CudaError:
            return False  # they cannot be had, here or there
        return first < begin + size and begin < first + self.nbytes

    def freeze(self) -> None:
        """Have a copy of the bytes before their client may change them."""
        try:
            _ = self.address
        except DeviceError as error:
            self._lost = error
            self._give_back()

    def _give_back(self) -> None:
        if self._ticket is not None:
            self._alive.pop(self._ticket, None)
        super()._give_back()


def _told(look: Callable[[], _T]) -> _T:
    """Call a function of an allocation, with Triton's text for one that cannot be opened."""
    try:
        return look()
    except cuda.CudaError as error:
        raise DeviceError(f"Failed to open the cudaIpcHandle. error: {error}") from error


class Borrowings:
    """Device memory lent by other stubs."""

    def __init__(self, channel: Channel, pool: DevicePool) -> None:
        self.channel = channel
        self.pool = pool
        self._known: dict[int, Opening] = {}

    def learn(self, frame: bytes) -> None:
        """Act on ALLOCATION."""
        number, allocation = messages.allocation(frame)
        if number in self._known:
            raise NotUnderstood(f"allocation {number} is known")
        self._known[number] = Opening(self, allocation)

    def forget(self, frame: bytes) -> None:
        """Act on FREED. The allocation is closed with the last tensor in it."""
        self._known.pop(messages.HEADER.unpack_from(frame)[5], None)

    def opening(self, number: int) -> Opening | None:
        """An allocation of another process; None if it was not announced, or is not named any more."""
        return self._known.get(number)

    def memory(
        self, own: bool, number: int, ticket: int, offset: int, size: int, sole: bool, alive: _Alive | None = None
    ) -> Borrowed:
        """The memory that a descriptor names. `alive` is where a client's is to be found before a response is sent.

        The ticket goes back with the memory, and after an error.
        """
        of: Opening | _Own
        if own:
            found = self.pool.address_of(number)
            if found is None:
                self.channel.give_back(ticket)
                raise NotUnderstood(f"it names allocation {number}, which this process has not lent")
            of = _Own(*found)
        else:
            known = self._known.get(number)
            if known is None:
                self.channel.give_back(ticket)
                raise NotUnderstood(f"it names allocation {number}, which was not announced")
            of = known
        if alive is None:
            borrowed = Borrowed(self, of, ticket, offset, size, sole)
        else:
            borrowed = ClientBorrowed(self, of, ticket, offset, size, alive)
        if offset + size > of.allocation.size:
            raise NotUnderstood(f"{size} bytes at {offset} lie outside the {of.allocation.size} of allocation {number}")
        return borrowed
