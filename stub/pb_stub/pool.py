"""Pool: the arena of *up*, from which the stub takes blocks for the tensors that it sends.

Sizes are classes of whole pages, four per octave, so at most a fifth of a block is wasted. A block
keeps its class and its place. Free blocks of a class are reused last in, first out, because
recently used memory is many times cheaper than fresh memory. Only if the file has no space left are
free blocks joined and divided again.

            place: in the file, sparse, cheap         memory: real, counted in `backed`
    taken   the bytes that follow `_top`              reserved (fallocate) before use, in steps of growth
    freed   kept, in the list of its size             kept; released (MADV_REMOVE) while the stub idles: "hollow"

Ownership: a Block is referenced by the tensor that was sent from it, and by each descriptor that
named it and has not come back in the return ring. It is free when neither remains.

Lock: `_alone` guards everything except `_dropped`, to which the end of a Block, at any time in any
thread, only appends. A signal handler or destructor that interrupts and requests a block is
rejected, or it would wait for the thread that it interrupts.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from collections import deque
from typing import Any, Callable, NoReturn, Protocol

import numpy as np
from c_python_backend_utils.memory import DeviceMemory

from . import layout
from .channel import Channel, lost
from .mappings import CELL, FileMapping, FileMappings

_PAGE = layout.PAGE
_RETURNED = layout.RETURNED_AT // 8
_COLLECTED = layout.COLLECTED_AT // 8
_RETURN_RING = layout.RETURN_RING_AT // 8
_SLOTS = layout.RETURN_RING_SLOTS
_GRANTED = layout.GRANTED_AT // 8
_WANTED = layout.WANTED_AT // 8
_ANSWERED = layout.ANSWERED_AT // 8
_ASKED = layout.ASKED_AT // 8

#: Memory above the default that was not needed for this time is released.
TRIM_AFTER_SECONDS = 1.0

#: Set in the index of tickets of device blocks.
ELSEWHERE = 1 << 31

#: How long the supervisor may take to grant memory.
GRANT_SECONDS = 10.0


class DeviceMemoryLender(Protocol):
    """Lends device memory; implemented by ondevice.OnDevice."""

    pool: Any  # devicepool.DevicePool, whose module imports this one

    def lend(self, memory: DeviceMemory) -> tuple[int, int, int] | None:
        """Copy memory and lend the copy: allocation, offset and ticket.

        None: use the host instead.
        """


def _nowhere() -> NoReturn:
    raise PoolExhausted("memory of devices is not lent here")


class PoolExhausted(Exception):
    """No memory for a block. Clients see the text, which is Triton's up to the reason."""


def size_class(size: int) -> int:
    """Return the block size for size bytes: whole pages, four classes per octave."""
    pages = max(1, -(-size // _PAGE))
    if pages <= 8:
        return pages * _PAGE
    shift = (pages - 1).bit_length() - 3
    return (-(-pages >> shift) << shift) * _PAGE


class Block:
    """A range of the arena, given by its offset in *up*. Returned when this object is deleted."""

    __slots__ = ("_dropped", "index", "mapping", "offset", "size")

    def __init__(self, index: int, offset: int, size: int, mapping: FileMapping | None, dropped: deque[int]) -> None:
        self.index = index
        self.offset = offset
        self.size = size  # bytes in use
        self.mapping = mapping
        self._dropped = dropped

    def fill(self, data: bytes) -> None:
        """Write the bytes of the block."""
        mapping = self.mapping
        assert mapping is not None
        at = self.offset - mapping.start
        mapping.map[at : at + len(data)] = data

    def address(self) -> int:
        """Return the address of the block in this process, valid while the block lives."""
        mapping = self.mapping
        assert mapping is not None
        return mapping.address + self.offset - mapping.start

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an array over the block."""
        mapping = self.mapping
        assert mapping is not None
        array: np.ndarray = np.ndarray(shape, dtype, mapping.map, self.offset - mapping.start)
        return array

    def __del__(self) -> None:
        self._dropped.append(self.index)


class Alone:
    """The lock of a pool.

    Rejects a thread that already holds it: a destructor or signal handler.
    """

    def __init__(self) -> None:
        self.mu = threading.Lock()
        self.busy: set[int] = set()  # idents of threads that hold mu or wait for it, added before they acquire it

    def __enter__(self) -> None:
        me = threading.get_ident()
        if me in self.busy:
            raise PoolExhausted("a destructor or signal handler requested memory during another request for memory")
        self.busy.add(me)
        self.mu.acquire()

    def __exit__(self, *_: object) -> None:
        self.mu.release()
        self.busy.discard(threading.get_ident())


class Pool:
    """Allocates blocks, lends them to the supervisor, and reuses returned ones."""

    __slots__ = (
        "_alone",
        "_asked",
        "_busy",
        "_channel",
        "_collected",
        "_default",
        "_dropped",
        "_end",
        "_fd",
        "_free",
        "_generations",
        "_growth",
        "_hollow",
        "_lent",
        "_mapped",
        "_mappings",
        "_max",
        "_most_used",
        "_mu",
        "_offsets",
        "_outstanding",
        "_outstanding_elsewhere",
        "_peer",
        "_references",
        "_reserved",
        "_since",
        "_size",
        "_sizes",
        "_top",
        "_unused",
        "_words",
        "backed",
        "elsewhere",
        "returned",
        "used",
    )

    def __init__(self, channel: Channel, fd: int, default_bytes: int, growth_bytes: int, max_bytes: int) -> None:
        self._channel = channel
        self._words = channel.up64
        self._peer = channel.down64
        self._fd = fd
        self._default = default_bytes
        self._growth = size_class(growth_bytes)
        self._end = os.fstat(fd).st_size
        self._mappings = FileMappings(self._end, self._map)
        self._mapped = self._mappings.made
        self._max = max_bytes or self._end
        self._alone = Alone()
        self._busy = self._alone.busy
        self._mu = self._alone.mu
        self._dropped: deque[int] = deque()

        # The private table of blocks, by index. A ticket is the index, with the generation in its
        # high half.
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._references: list[int] = []
        self._lent: list[int] = []  # number of references that are descriptors at the supervisor
        self._generations: list[int] = []
        self._hollow: list[bool] = []
        self._unused: list[int] = []  # indices whose space was joined with others

        self._free: dict[int, list[int]] = {}  # indices by size, hollow ones first
        self._top = layout.ARENA_AT  # everything below was taken
        self._reserved = layout.ARENA_AT  # memory up to here was reserved
        self.backed = 0  # bytes of real memory
        self.used = 0  # bytes of these in used blocks
        self._size = 0  # of the block that is being taken
        self._asked = 0  # number of requests and reports to the supervisor
        self._outstanding = 0  # descriptors at the supervisor
        self._outstanding_elsewhere = 0  # those of them that name device memory
        self._collected = 0
        self._most_used = 0  # since _since
        self._since = 0.0  # 0: nothing to release
        #: Returns the lender of device memory; the loop sets it.
        self.elsewhere: Callable[[], DeviceMemoryLender] = _nowhere
        #: Returned tickets of device memory.
        self.returned: deque[int] = deque()

    def take(self, size: int) -> Block:
        """Take a block for size bytes; PoolExhausted if there is no memory for it."""
        with self._alone:
            self._collect()
            self._size = size
            index = self._find(size_class(size))
            self._references[index] = 1
            self.used += self._sizes[index]
            self._most_used = max(self._most_used, self.used)
            offset = self._offsets[index]
            mapping = self._mappings.over(offset, self._sizes[index])
            block = Block(index, offset, size, mapping, self._dropped)
            if mapping is None:
                raise self._exhausted(self._sizes[index], self._mappings.refused)
            return block

    def owns(self, block: Block) -> bool:
        """Return whether a block is from this pool."""
        return block._dropped is self._dropped

    def lend(self, block: Block) -> int:
        """Make a ticket for one descriptor that names block."""
        with self._alone:
            if self._outstanding == _SLOTS:
                self._collect()
                if self._outstanding == _SLOTS:
                    raise self._exhausted(0, f"{_SLOTS} tensors of this process are still being sent, the maximum")
            self._outstanding += 1
            self._references[block.index] += 1
            self._lent[block.index] += 1
            return block.index | self._generations[block.index] << 32

    def lend_elsewhere(self) -> None:
        """Count a descriptor that names device memory."""
        with self._alone:
            if self._outstanding == _SLOTS:
                self._collect()
                if self._outstanding == _SLOTS:
                    raise self._exhausted(0, f"{_SLOTS} tensors of this process are still being sent, the maximum")
            self._outstanding += 1
            self._outstanding_elsewhere += 1

    def collect(self) -> None:
        """Process returned tickets, for threads that wait in `returned`."""
        with self._alone:
            self._collect()

    def lent(self) -> bool:
        """Return whether the supervisor has anything of the pool."""
        with self._alone:
            self._collect()
            return self._outstanding > 0

    def withdraw(self, ticket: int) -> None:
        """Take back a ticket that was not sent."""
        with self._alone:
            self._settle(ticket)

    def free(self) -> int:
        """Return the bytes that can still be taken, if the machine has them."""
        with self._alone:
            self._collect()
            return self._max - self.used

    def patience(self) -> int | None:
        """Release memory that was not needed for a while; called before a sleep.

        Returns the milliseconds until the next useful check, or None if the next frame comes
        first.
        """
        with self._alone:
            self._collect()
            now = time.monotonic()
            if self._since and now - self._since >= TRIM_AFTER_SECONDS:
                self._give_back(self.backed - max(self._most_used, self._default))
                self._since = 0.0
                if self.backed < self._peer[_GRANTED]:
                    self._tell(self.backed)
            if self.backed <= self._default or (self.backed == self.used and not self._outstanding):
                self._since = 0.0
                # A request that was refused may have released more than it took, and no later check
                # reports that.
                if max(self.backed, self._default) < self._peer[_GRANTED] and self._words[_WANTED] != self.backed:
                    self._tell(self.backed)
                return None
            if not self._since:
                self._since = now
                self._most_used = self.used
            return int((self._since + TRIM_AFTER_SECONDS - now) * 1000) + 1

    def _collect(self) -> None:
        """Process tickets returned by the supervisor, and blocks whose tensors were deleted."""
        returned = self._peer[_RETURNED]
        collected = self._collected
        if collected != returned:
            while collected != returned:
                self._settle(self._peer[_RETURN_RING + collected % _SLOTS])
                collected += 1
            self._words[_COLLECTED] = self._collected = collected
        dropped = self._dropped
        while dropped:
            self._drop(dropped.popleft())

    def _settle(self, ticket: int) -> None:
        index = ticket & 0xFFFFFFFF
        if index >= ELSEWHERE and self._outstanding_elsewhere:
            self._outstanding -= 1
            self._outstanding_elsewhere -= 1
            self.returned.append(ticket)
            return
        if index >= len(self._offsets) or self._generations[index] != ticket >> 32 or not self._lent[index]:
            self._channel.distrust(f"ticket {ticket:#x} came back and was not out")
        self._outstanding -= 1
        self._lent[index] -= 1
        self._drop(index)

    def _drop(self, index: int) -> None:
        self._references[index] -= 1
        if not self._references[index]:
            self._generations[index] = (self._generations[index] + 1) & 0xFFFFFFFF
            size = self._sizes[index]
            self.used -= size
            self._free.setdefault(size, []).append(index)

    def _find(self, size: int) -> int:
        """Find a free block of exactly size bytes, or make one. The caller counts it as used."""
        free = self._free.get(size)
        if free and not self._hollow[free[-1]]:
            return free.pop()
        if free:
            index = free[-1]
            self._reserve(self._offsets[index], size, size)
            self._hollow[index] = False
            free.remove(index)
            return index
        if self._top + size > self._end:
            return self._cut(size)
        missing = self._top + size - self._reserved
        if missing > 0:
            steps = -(-missing // self._growth) * self._growth
            self._reserved += self._reserve(self._reserved, min(steps, self._end - self._reserved), missing)
        self._top += size
        return self._enter(self._top - size, size)

    def _enter(self, offset: int, size: int) -> int:
        """Enter a block into the table."""
        if self._unused:
            index = self._unused.pop()
            self._offsets[index] = offset
            self._sizes[index] = size
            self._hollow[index] = False
            return index
        self._offsets.append(offset)
        self._sizes.append(size)
        self._references.append(0)
        self._lent.append(0)
        self._generations.append(0)
        self._hollow.append(False)
        return len(self._offsets) - 1

    def _cut(self, size: int) -> int:
        """Make a block from free neighbours, because there is no space after the last block."""
        run = self._free_run(size)
        start = self._offsets[run[0]]
        length = sum(self._sizes[index] for index in run)
        for index in run:
            self._free[self._sizes[index]].remove(index)
            if not self._hollow[index]:
                self._hollow_out(self._offsets[index], self._sizes[index])
        self._unused.extend(run)
        try:
            self._reserve(start, size, size)
        except PoolExhausted:
            self._keep_hollow(start, length)
            raise
        if length > size:
            self._keep_hollow(start + size, length - size)
        return self._enter(start, size)

    def _free_run(self, size: int) -> list[int]:
        """Return indices of adjacent free blocks with size bytes in total."""
        run: list[int] = []
        length = 0
        end = -1
        for offset, index in sorted((self._offsets[i], i) for indices in self._free.values() for i in indices):
            if offset != end:
                run, length = [], 0
            run.append(index)
            length += self._sizes[index]
            if length >= size:
                return run
            end = offset + self._sizes[index]
        raise self._exhausted(size, self._full())

    def _keep_hollow(self, offset: int, size: int) -> None:
        index = self._enter(offset, size)
        self._hollow[index] = True
        self._free.setdefault(size, []).insert(0, index)

    def _reserve(self, offset: int, size: int, needed: int) -> int:
        """Reserve size bytes, or only the needed ones if memory is short. Returns the number."""
        reason = ""
        # A step ahead is optional; for the needed bytes, free blocks are released, if necessary
        # all.
        for amount, last_resort in ((size, False), (needed, False), (needed, True)):
            over = self.backed + amount - self._max
            if last_resort:
                over = self.backed - self.used
            if over > 0 and amount == needed:
                self._give_back(over)
            if self.backed + amount > self._max:
                reason = self._full()
                continue
            if not self._granted(self.backed + amount):
                reason = (
                    f"a tensor needs {self._size} bytes, others of this process use {self.used}, and the model's share "
                    "of the server's memory for requests (--model-max-memory-share), or all of it, is used up "
                    "(--request-memory-byte-size)"
                )
                continue
            try:
                os.posix_fallocate(self._fd, offset, amount)
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise lost(error) from error
                reason = error.strerror or str(error)
                continue
            self.backed += amount
            return amount
        raise self._exhausted(needed, reason)

    def _granted(self, total: int) -> bool:
        """Return whether total bytes may be reserved. Asks the supervisor if not allowed before."""
        granted = self._peer[_GRANTED]
        if not granted or total <= granted:
            return True
        asked = self._tell(total)
        late = time.monotonic() + GRANT_SECONDS
        yields = 0
        while self._peer[_ANSWERED] != asked:
            yields += 1
            if yields < 100:
                os.sched_yield()
            elif time.monotonic() > late:
                return False
            else:
                self._channel.moment()
        return total <= self._peer[_GRANTED]

    def _tell(self, total: int) -> int:
        """Report the total of required bytes; returns the number of the report."""
        self._asked += 1
        self._words[_WANTED] = total
        os.sched_yield()  # a full barrier: a reader that sees the number sees the bytes
        self._words[_ASKED] = self._asked
        self._channel.knock()
        return self._asked

    def _give_back(self, surplus: int) -> None:
        """Release about surplus bytes.

        Reserved bytes come first, then free blocks, large and old first.
        """
        if surplus <= 0:
            return
        ahead = self._reserved - self._top
        if ahead:
            self._reserved = self._top
            self._hollow_out(self._top, ahead)
            surplus -= ahead
        for size in sorted(self._free, reverse=True):
            for index in self._free[size]:
                if surplus <= 0:
                    return
                if not self._hollow[index]:
                    self._hollow[index] = True
                    self._hollow_out(self._offsets[index], size)
                    surplus -= size

    def _hollow_out(self, offset: int, size: int) -> None:
        self.backed -= size
        # Through the mapping that a block of this place uses; joined or reserved bytes may need
        # several.
        steps = size if self._mappings.over(offset, size) else CELL
        for at in range(offset, offset + size, steps):
            length = min(steps, offset + size - at)
            mapping = self._mappings.over(at, length)
            if mapping is not None:  # otherwise the block's next release frees its memory
                mapping.map.madvise(mmap.MADV_REMOVE, at - mapping.start, length)

    def _map(self, start: int, size: int) -> mmap.mmap:
        return mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start)

    def _full(self) -> str:
        return (
            f"a tensor needs {self._size} bytes in one piece, others of this process use {self.used}, and all together "
            f"may use {self._max}: the limit is shm-max-byte-size of --backend-config, or the model's share "
            "(--model-max-memory-share) of --request-memory-byte-size if that is less, and not --shm-size"
        )

    def _exhausted(self, needed: int, reason: str) -> PoolExhausted:
        return PoolExhausted(
            f"Failed to increase the shared memory pool size to {self.backed + needed} bytes. If you are running "
            "Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: " + reason
        )
