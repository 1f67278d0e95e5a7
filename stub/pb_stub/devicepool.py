"""Device memory that this stub lends: the counterpart of `pool`, which lends from its arena.

Outputs on a device are copied, on the device, into blocks of allocations that the stub has made and
announced (LEND). So the model may reuse its memory at once, and memory that other processes cannot
open needs no special case. A block is referenced by its object and by each descriptor that names it
and has not been returned.

Locks: `_growing`, acquired before `_alone`, is held while an allocation is made and LEND is sent,
in numerical order. `_alone` guards the tables. No thread waits while it holds `_alone`, because a
sending thread may run destructors that need a block. Objects that are deleted, in any thread at any
time, only append to `_dropped`; tickets from the return ring are in the arena pool's `returned`. A
signal handler or destructor that interrupts and requests a block is rejected.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque

from c_python_backend_utils import cuda
from c_python_backend_utils.memory import DeviceMemory

from . import messages
from .channel import Channel
from .pool import ELSEWHERE, TRIM_AFTER_SECONDS, Alone, Pool, PoolExhausted, size_class

#: Bytes of an allocation, unless one block needs more.
GROWTH = 32 << 20

#: Bytes of unused allocations to keep on one device.
KEPT = 64 << 20

#: Maximum number of lent allocations. The supervisor allows 256, and UNLEND may wait after a LEND.
MOST_LENT = 192

#: How long a thread waits for another thread that makes an allocation.
GROWING_SECONDS = 2.0

#: How long an ending process waits until others have returned its memory.
LINGER_SECONDS = 5.0

_OUT_OF_MEMORY = 2


class _Chunk:
    """One allocation."""

    __slots__ = ("base", "device", "number", "size", "taken", "top", "used")

    def __init__(self, number: int, device: cuda.Device, base: int, size: int) -> None:
        self.number = number
        self.device = device
        self.base = base
        self.size = size
        self.top = 0  # the space below is in use or was
        self.taken = 0  # blocks in use
        self.used = time.monotonic()  # when the last of them became free


class _Entry:
    """Space for one block, in the table of the pool."""

    __slots__ = ("chunk", "generation", "lent", "offset", "references", "size")

    def __init__(self, chunk: _Chunk, offset: int, size: int) -> None:
        self.chunk: _Chunk | None = chunk  # None: its allocation was freed
        self.offset = offset
        self.size = size  # size of the space
        self.references = 0
        self.lent = 0  # number of references that are descriptors at the supervisor
        self.generation = 0


class DeviceBlock:
    """A range of our allocation, returned when the last reference to this object is deleted."""

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
    """Device memory that this stub lends."""

    def __init__(self, channel: Channel, pool: Pool) -> None:
        self._channel = channel
        self._pool = pool  # counts tickets at the supervisor
        self._alone = Alone()
        self._growing = threading.Lock()
        self._numbers = itertools.count(1)
        self._lent = 0  # allocations, including unfinished ones
        self._out = 0  # tickets
        self._chunks: list[_Chunk] = []
        self._entries: list[_Entry] = []
        self._unused: list[int] = []  # indices of entries whose allocation was freed
        self._free: dict[tuple[cuda.Device, int], list[int]] = {}  # indices by device and size
        self._dropped: deque[int] = deque()

    def copy(self, memory: DeviceMemory, to: cuda.Device | None = None) -> DeviceBlock:
        """Copy memory of a device into a block, on the same device or another.

        Raises CudaError or DeviceError, or PoolExhausted if too much is lent.
        """
        address = memory.address  # opens memory lent by another process
        source = cuda.device(memory.device)
        block = self.take(to or source, memory.nbytes)
        block.device.copy(block.address, address, memory.nbytes, source)
        return block

    def take(self, device: cuda.Device, size: int) -> DeviceBlock:
        """Take a block of a device. Raises CudaError, or PoolExhausted if too much is lent."""
        block = self._take(device, size)
        while block is None:
            # With a timeout: this may be a destructor in a sending thread, for which the growing
            # thread waits.
            if not self._growing.acquire(timeout=GROWING_SECONDS):
                raise PoolExhausted("another thread makes an allocation")
            try:
                block = self._take(device, size)  # from the other thread's allocation
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
        """Wait for the model's queued work on a block, before another tensor uses it."""
        if not self._channel.foreign:
            with contextlib.suppress(cuda.CudaError):  # nothing runs there any more
                block.device.synchronize_all()

    def lend(self, block: DeviceBlock) -> int:
        """Make a ticket for a descriptor that names block; PoolExhausted if too many are out."""
        self._pool.lend_elsewhere()
        with self._alone:
            entry = self._entries[block.index]
            entry.references += 1
            self._out += 1
            entry.lent += 1
            return block.index | ELSEWHERE | entry.generation << 32

    def address_of(self, number: int) -> tuple[cuda.Device, int, int] | None:
        """Return device, address and size of our allocation with this number, or None."""
        with self._alone:
            for chunk in self._chunks:
                if chunk.number == number:
                    return chunk.device, chunk.base, chunk.size
        return None

    def out(self) -> int:
        """Return the number of unreturned descriptors that name our memory."""
        with self._alone:
            self._collect()
            return self._out

    def linger(self) -> None:
        """Wait, within limits, until all are returned: memory ends with its process."""
        end = time.monotonic() + LINGER_SECONDS
        while self.out() and time.monotonic() < end:
            self._channel.moment()

    def patience(self) -> int | None:
        """Free allocations unused for a while, except for a reserve; called before a sleep.

        Returns the milliseconds until the next useful check, or None if the next frame comes
        first.
        """
        try:
            return self._trim()
        except PoolExhausted:
            return None  # a signal handler waits for the server; the interrupted state must not change

    def _trim(self) -> int | None:
        with self._alone:
            self._collect()
            now = time.monotonic()
            soonest = None
            kept: dict[int, int] = {}
            # Used and recently used allocations are kept, each for its own time.
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
        """Free an allocation without used blocks.

        Processes that have opened it may continue to read.
        """
        self._chunks.remove(chunk)
        self._lent -= 1
        for index, entry in enumerate(self._entries):
            if entry.chunk is chunk:
                self._free[chunk.device, entry.size].remove(index)
                entry.chunk = None
                self._unused.append(index)
        # This may be any thread, even the holder of the lock for sending.
        self._channel.post(messages.encode(messages.UNLEND, self._channel.life, chunk.number, b""))
        try:
            chunk.device.free(chunk.base)
        except cuda.CudaError:
            pass  # the device is lost, with its memory

    def _collect(self) -> None:
        """Process returned tickets and deleted blocks."""
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
        """Find or allot free space of exactly size bytes; None if no allocation has room."""
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
        """Make and announce an allocation; the caller holds `_growing`. Others may use it up."""
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
