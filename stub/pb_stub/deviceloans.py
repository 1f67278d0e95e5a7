"""Device memory lent by other processes: the counterpart of `loans`, which is for host blocks.

A received tensor is a Borrowed: its allocation is opened on first access, once for all tensors in
it, and closed when the supervisor has sent FREED and no tensor is left. If another process also
reads the bytes, the model gets its own copy. Before a ticket is returned, all work of the context
must be complete: kernels may still read.

Locks: those of tensors and allocations are reentrant. Where a signal handler or destructor may have
interrupted, the state is checked again.
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

#: Reported if a client's memory cannot be opened, usually because the client has exited.
_CLIENTS = (
    "the client that has registered this memory has ended, or freed it, before this instance looked at it: let the "
    "client keep it until each instance has, or set FORCE_CPU_ONLY_INPUT_TENSORS to 'yes', as the server holds the "
    "memory"
)

_T = TypeVar("_T")

#: By ticket: weak references to memory that clients may change once a response is sent.
_Alive = Dict[int, Any]


class Opening:
    """An allocation of another process. Opened on first access, closed with this object."""

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
                with self._mu:  # the context was reset, which closed its allocations
                    if self._device is device:
                        self._device, self._address = None, 0
                device = None
        if device is None:
            device = self._device = cuda.device_of(self.allocation.uuid)
        return device

    def address(self) -> int:
        """The start of the allocation; CudaError if it cannot be opened."""
        device = self.device()
        with self._mu:
            if not self._address:
                address = device.open(self.allocation.handle)
                if device.room_at(address) < self.allocation.size:
                    # The announced size is wrong: a kernel that reads past the end would destroy
                    # our context.
                    device.close(address)
                    text = f"the allocation has less than the {self.allocation.size} bytes that were announced"
                    raise cuda.CudaError("cuIpcOpenMemHandle_v2", 1, text)
                if self._address:  # a signal handler or destructor has opened it meanwhile
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
    """An allocation of this process, which it cannot open."""

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
    """The bytes of a received tensor, with a ticket that is returned after deletion or a copy."""

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
        """The address of the bytes; DeviceError if they are not available."""
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
            if self._block is None:  # otherwise a signal handler or destructor has copied it meanwhile
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
    """Bytes of a client, which owns them again after the response. Kept bytes are copied before."""

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
        """Return whether a range of addresses overlaps these bytes, if they were not copied yet."""
        if self._block is not None or self._lost is not None:
            return False
        try:
            first = self._of.address() + self._offset
        except cuda.CudaError:
            return False  # they are not available in either place
        return first < begin + size and begin < first + self.nbytes

    def freeze(self) -> None:
        """Copy the bytes before their client may change them."""
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
    """Call a function of an allocation, with Triton's text if it cannot be opened."""
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
        """Handle ALLOCATION."""
        number, allocation = messages.allocation(frame)
        if number in self._known:
            raise NotUnderstood(f"allocation {number} was already announced")
        self._known[number] = Opening(self, allocation)

    def forget(self, frame: bytes) -> None:
        """Handle FREED. The allocation is closed with its last tensor."""
        self._known.pop(messages.HEADER.unpack_from(frame)[5], None)

    def opening(self, number: int) -> Opening | None:
        """Return an allocation of another process; None if unknown or already freed."""
        return self._known.get(number)

    def memory(
        self, own: bool, number: int, ticket: int, offset: int, size: int, sole: bool, alive: _Alive | None = None
    ) -> Borrowed:
        """Return the memory that a descriptor names.

        `alive` records client memory, for freezing it. The ticket is returned with the memory, and
        after an error.
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
