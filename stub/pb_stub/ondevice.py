"""Tensors that stay on a device: what this stub lends of devices' memory, and what others have lent to it.

Lending. What leaves the stub on a device is copied, on the device, into blocks of allocations that the stub has made
and announced (LEND). So the model may reuse its own memory at once, and memory that other processes cannot open needs
nothing special. A block is held by its object and once more for each descriptor that named it and has not come back.

Borrowing. A tensor that came is a Borrowed: its allocation is opened when the model first looks, once for all tensors
in it, and closed when the supervisor has said FREED and no tensor is left. If another process reads the bytes too, the
model gets a copy of its own. Before a ticket goes back all work of the context has ended: kernels may still read.

Locks: `_growing` of a DevicePool, before `_alone`, is held while an allocation is made and LEND is sent, in the order
of numbers. `_alone` guards the tables; nothing is waited for while it is held, since a thread that sends may run
destructors that want a block. Objects that die in any thread at any moment only append to `_dropped`; what the pool of
the arena finds in the return ring is in its `returned`. A signal handler or destructor that comes in between and wants
a block is refused. The locks of tensors and allocations are entered anew by the thread that has them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Dict, TypeVar

from c_python_backend_utils import cuda
from c_python_backend_utils.memory import DeviceError, DeviceMemory

from . import messages
from .channel import Channel
from .errors import NotUnderstood
from .pool import ELSEWHERE, TRIM_AFTER_SECONDS, Alone, Pool, PoolExhausted, size_class

#: Bytes of an allocation, unless one block needs more.
GROWTH = 32 << 20

#: Bytes of allocations on one device that are kept while nothing in them is used.
KEPT = 64 << 20

#: How many allocations are lent at a time. The supervisor allows 256, and UNLEND may wait behind a LEND.
MOST_LENT = 192

#: How long a thread waits for another one that makes an allocation.
GROWING_SECONDS = 2.0

#: How long a process that is to end waits for others to be done with what it has lent them.
LINGER_SECONDS = 5.0

_OUT_OF_MEMORY = 2

#: Where a client's memory cannot be opened: it has ended, mostly.
_CLIENTS = (
    "the client that has registered this memory has ended, or freed it, before this instance looked at it: let the "
    "client keep it until each instance has, or set FORCE_CPU_ONLY_INPUT_TENSORS to 'yes', as the server holds the "
    "memory"
)

_T = TypeVar("_T")

#: By ticket: weak references to what clients may change when a response has left.
_Alive = Dict[int, Any]


class _Chunk:
    """One allocation."""

    __slots__ = ("base", "device", "number", "size", "taken", "top", "used")

    def __init__(self, number: int, device: cuda.Device, base: int, size: int) -> None:
        self.number = number
        self.device = device
        self.base = base
        self.size = size
        self.top = 0  # places below have been cut
        self.taken = 0  # blocks that are not free
        self.used = time.monotonic()  # when the last of them became free


class _Entry:
    """One place for a block, in the table of the pool."""

    __slots__ = ("chunk", "generation", "lent", "offset", "references", "size")

    def __init__(self, chunk: _Chunk, offset: int, size: int) -> None:
        self.chunk: _Chunk | None = chunk  # None: its allocation was freed
        self.offset = offset
        self.size = size  # of the place
        self.references = 0
        self.lent = 0  # how many of these are descriptors at the supervisor
        self.generation = 0


class DeviceBlock:
    """A range of an allocation of ours. It goes back when the last reference to this object dies."""

    __slots__ = ("_dropped", "address", "device", "index", "number", "offset", "size")

    def __init__(self, index: int, entry: _Entry, size: int, dropped: deque[int]) -> None:
        chunk = entry.chunk
        assert chunk is not None
        self.index = index
        self.device = chunk.device
        self.number = chunk.number
        self.offset = entry.offset
        self.address = chunk.base + entry.offset
        self.size = size  # bytes in use
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped.append(self.index)


class DevicePool:
    """Memory of devices that this stub lends."""

    def __init__(self, channel: Channel, pool: Pool) -> None:
        self._channel = channel
        self._pool = pool  # counts what is at the supervisor
        self._alone = Alone()
        self._growing = threading.Lock()
        self._numbers = itertools.count(1)
        self._lent = 0  # allocations, with those that are being made
        self._out = 0  # tickets
        self._chunks: list[_Chunk] = []
        self._entries: list[_Entry] = []
        self._unused: list[int] = []  # indices of entries whose allocation was freed
        self._free: dict[tuple[cuda.Device, int], list[int]] = {}  # indices by device and size
        self._dropped: deque[int] = deque()

    def copy(self, memory: DeviceMemory, to: cuda.Device | None = None) -> DeviceBlock:
        """Copy memory of a device into a block, on that device or another one.

        CudaError or DeviceError say why not; PoolExhausted, if too much is lent.
        """
        address = memory.address  # opens what another process has lent
        source = cuda.device(memory.device)
        block = self.take(to or source, memory.nbytes)
        block.device.copy(block.address, address, memory.nbytes, source)
        return block

    def take(self, device: cuda.Device, size: int) -> DeviceBlock:
        """Take a block of a device. CudaError says why not; PoolExhausted, if too much is lent."""
        block = self._take(device, size)
        while block is None:
            # Not for ever: a destructor may be here in a thread that sends, which the one that grows waits for.
            if not self._growing.acquire(timeout=GROWING_SECONDS):
                raise PoolExhausted("another thread makes an allocation")
            try:
                block = self._take(device, size)  # from what that thread has made
                if block is None:
                    self._grow(device, size_class(size))
            finally:
                self._growing.release()
        return block

    def _take(self, device: cuda.Device, size: int) -> DeviceBlock | None:
        with self._alone:
            self._collect()
            index = self._find(device, size_class(size))
            if index is None:
                return None
            entry = self._entries[index]
            entry.references = 1
            assert entry.chunk is not None
            entry.chunk.taken += 1
            return DeviceBlock(index, entry, size, self._dropped)

    def settle(self, block: DeviceBlock) -> None:
        """Wait for what the model may still have queued for a block, before it becomes another tensor's."""
        if not self._channel.foreign:
            with contextlib.suppress(cuda.CudaError):  # nothing runs there any more
                block.device.synchronize_all()

    def lend(self, block: DeviceBlock) -> int:
        """Make the ticket for one descriptor that names block; PoolExhausted if too many are out."""
        self._pool.lend_elsewhere()
        with self._alone:
            entry = self._entries[block.index]
            entry.references += 1
            self._out += 1
            entry.lent += 1
            return block.index | ELSEWHERE | entry.generation << 32

    def address_of(self, number: int) -> tuple[cuda.Device, int, int] | None:
        """Device, address and bytes of an allocation of ours; None if there is none of this number."""
        with self._alone:
            for chunk in self._chunks:
                if chunk.number == number:
                    return chunk.device, chunk.base, chunk.size
        return None

    def out(self) -> int:
        """How many descriptors that name memory of ours have not come back."""
        with self._alone:
            self._collect()
            return self._out

    def linger(self) -> None:
        """Wait until all have come back, but not for ever: nobody can open the memory of a process that has ended."""
        end = time.monotonic() + LINGER_SECONDS
        while self.out() and time.monotonic() < end:
            self._channel.moment()

    def patience(self) -> int | None:
        """Free allocations that were not used for a while, beyond some that are kept; called before sleep.

        Returns the milliseconds after which another look is worth while, None if that is not before the next frame.
        """
        try:
            return self._trim()
        except PoolExhausted:
            return None  # a signal handler waits for the server; what it has interrupted is not to be touched

    def _trim(self) -> int | None:
        with self._alone:
            self._collect()
            now = time.monotonic()
            soonest = None
            kept: dict[int, int] = {}
            # What is used, and what was used last, is kept; and each allocation has its own time.
            for chunk in sorted(self._chunks, key=lambda chunk: (not chunk.taken, -chunk.used)):
                size = kept.get(chunk.device.number, 0) + chunk.size
                left = chunk.used + TRIM_AFTER_SECONDS - now
                if chunk.taken or (size <= KEPT and not chunk.device.gone):
                    kept[chunk.device.number] = size
                elif left <= 0:
                    self._release(chunk)
                elif soonest is None or left < soonest:
                    soonest = left
            return None if soonest is None else int(soonest * 1000) + 1

    def _release(self, chunk: _Chunk) -> None:
        """Free an allocation of which no block is used. Who has opened it may read on."""
        self._chunks.remove(chunk)
        self._lent -= 1
        for index, entry in enumerate(self._entries):
            if entry.chunk is chunk:
                self._free[chunk.device, entry.size].remove(index)
                entry.chunk = None
                self._unused.append(index)
        # Any thread may be here, also one that holds the lock for sending.
        self._channel.post(messages.encode(messages.UNLEND, self._channel.life, chunk.number, b""))
        try:
            chunk.device.free(chunk.base)
        except cuda.CudaError:
            pass  # the device is lost, and the memory with it

    def _collect(self) -> None:
        """Learn what has come back, and which blocks have died."""
        self._pool.collect()
        returned = self._pool.returned
        while returned:
            ticket = returned.popleft()
            index = ticket & (ELSEWHERE - 1)
            known = index < len(self._entries) and self._entries[index].generation == ticket >> 32
            if not known or not self._entries[index].lent:
                self._channel.distrust(f"ticket {ticket:#x} came back and was not out")
            self._entries[index].lent -= 1
            self._out -= 1
            self._drop(index)
        while self._dropped:
            self._drop(self._dropped.popleft())

    def _drop(self, index: int) -> None:
        entry = self._entries[index]
        entry.references -= 1
        if not entry.references:
            chunk = entry.chunk
            assert chunk is not None
            chunk.taken -= 1
            if not chunk.taken:
                chunk.used = time.monotonic()
            entry.generation = (entry.generation + 1) & 0xFFFFFFFF
            self._free.setdefault((chunk.device, entry.size), []).append(index)

    def _find(self, device: cuda.Device, size: int) -> int | None:
        """Find a free place of exactly size bytes, or cut one; None if no allocation has room."""
        free = self._free.get((device, size))
        if free:
            return free.pop()
        for chunk in self._chunks:
            if chunk.device is device and chunk.size - chunk.top >= size:
                return self._cut(chunk, size)
        return None

    def _cut(self, chunk: _Chunk, size: int) -> int:
        entry = _Entry(chunk, chunk.top, size)
        chunk.top += size
        if self._unused:
            index = self._unused.pop()
            entry.generation = self._entries[index].generation
            self._entries[index] = entry
        else:
            index = len(self._entries)
            self._entries.append(entry)
        return index

    def _grow(self, device: cuda.Device, size: int) -> None:
        """Make an allocation, and announce it; the caller has `_growing`. Others may take all that is in it."""
        with self._alone:
            if self._lent >= MOST_LENT:
                self._release_unused()
                if self._lent >= MOST_LENT:
                    raise PoolExhausted(f"{MOST_LENT} allocations of devices are lent")
            self._lent += 1
        try:
            chunk = self._made(device, max(GROWTH, -(-size // (2 << 20)) * (2 << 20)))
        except BaseException:
            with self._alone:
                self._lent -= 1
            raise
        with self._alone:
            self._chunks.append(chunk)

    def _made(self, device: cuda.Device, size: int) -> _Chunk:
        try:
            base = device.allocate(size)
        except cuda.CudaError as error:
            if error.code != _OUT_OF_MEMORY:
                raise
            with self._alone:
                self._release_unused()
            base = device.allocate(size)
        try:
            lent = messages.Allocation(device.number, size, device.uuid(), device.handle_of(base))
            chunk = _Chunk(next(self._numbers), device, base, size)
            self._channel.publish(messages.lend(self._channel.life, chunk.number, lent))
        except BaseException:
            with contextlib.suppress(cuda.CudaError):
                device.free(base)
            raise
        return chunk

    def _release_unused(self) -> None:
        self._collect()
        for chunk in list(self._chunks):
            if not chunk.taken:
                self._release(chunk)


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
                with self._mu:  # the context was reset, and has closed what was open
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
    """The bytes of a client, its own again when the response has left: what the model keeps is copied before."""

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
    """Call a function of an allocation, with Triton's text for what cannot be opened."""
    try:
        return look()
    except cuda.CudaError as error:
        raise DeviceError(f"Failed to open the cudaIpcHandle. error: {error}") from error


class Borrowings:
    """What other stubs have lent to this one."""

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
