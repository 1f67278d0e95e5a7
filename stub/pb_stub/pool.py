"""Pool: the arena of *up*, from which the stub takes blocks for the tensors that it sends.

Sizes are classes of whole pages, four to the octave, so at most a fifth of a block is wasted. A block keeps its class
and its place; freed ones of a class are reused last in, first out, because memory that was touched a moment ago is many
times cheaper than fresh memory. Only if the file has no place left are free blocks joined and cut anew.

            place: in the file, sparse, cheap         memory: real, counted in `backed`
    taken   the next bytes behind `_top`              reserved (fallocate) before use, in steps of growth
    freed   kept, in the list of its size             kept; given back (MADV_REMOVE) while the stub idles: "hollow"

Ownership: a Block is held by the tensor that was sent from it, and once more for each descriptor that named it and has
not come back in the return ring. It is free when the last of both has gone.

Lock: `_alone` guards all but `_dropped`, to which the end of a Block, at any moment in any thread, only appends. A
signal handler or destructor that comes in between and wants a block is refused, or it would wait for the thread that it
interrupts.
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

#: Memory above the default that was not needed for so long is given back.
TRIM_AFTER_SECONDS = 1.0

#: Set in the index of tickets of blocks on devices.
ELSEWHERE = 1 << 31

#: How long the supervisor may take to say whether there is memory.
GRANT_SECONDS = 10.0


class DeviceMemoryLender(Protocol):
    """Lends memory of devices; ondevice.OnDevice implements it."""

    pool: Any  # devicepool.DevicePool, whose module imports this one

    def lend(self, memory: DeviceMemory) -> tuple[int, int, int] | None:
        """Copy memory and lend the copy: allocation, offset and ticket. None if the bytes go through the host."""


def _nowhere() -> NoReturn:
    raise PoolExhausted("memory of devices is not lent here")


class PoolExhausted(Exception):
    """No memory for a block. The text is what clients see, word for word Triton's up to the reason."""


def size_class(size: int) -> int:
    """The bytes of a block for size bytes: whole pages, four classes to the octave."""
    pages = max(1, -(-size // _PAGE))
    if pages <= 8:
        return pages * _PAGE
    shift = (pages - 1).bit_length() - 3
    return (-(-pages >> shift) << shift) * _PAGE


class Block:
    """A range of the arena, named by its offset in *up*. It goes back when the last reference to this object dies."""

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
        """Where the block lies in this process, as long as it lives."""
        mapping = self.mapping
        assert mapping is not None
        return mapping.address + self.offset - mapping.start

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array over the block."""
        mapping = self.mapping
        assert mapping is not None
        array: np.ndarray = np.ndarray(shape, dtype, mapping.map, self.offset - mapping.start)
        return array

    def __del__(self) -> None:
        self._dropped.append(self.index)


class Alone:
    """The lock of a pool. A thread that asks for it while it has it is refused: its destructors and signal handlers."""

    def __init__(self) -> None:
        self._mu = threading.Lock()
        self._busy: set[int] = set()  # idents of the threads that hold _mu or wait for it, marked before they do

    def __enter__(self) -> None:
        me = threading.get_ident()
        if me in self._busy:
            raise PoolExhausted("memory was asked for in the midst of taking some, by a destructor or signal handler")
        self._busy.add(me)
        self._mu.acquire()

    def __exit__(self, *_: object) -> None:
        self._mu.release()
        self._busy.discard(threading.get_ident())


class Pool:
    """Allocates blocks, lends them to the supervisor, and reuses returned ones."""

    def __init__(self, channel: Channel, fd: int, default_bytes: int, growth_bytes: int, max_bytes: int) -> None:
        self._channel = channel
        self._words = channel.up64
        self._peer = channel.down64
        self._fd = fd
        self._default = default_bytes
        self._growth = size_class(growth_bytes)
        self._end = os.fstat(fd).st_size
        self._mappings = FileMappings(self._end, self._map)
        self._max = max_bytes or self._end
        self._alone = Alone()
        self._dropped: deque[int] = deque()

        # The private table of blocks, by index. A ticket is the index and, in its high half, the generation.
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._references: list[int] = []
        self._lent: list[int] = []  # how many of these are descriptors at the supervisor
        self._generations: list[int] = []
        self._hollow: list[bool] = []
        self._unused: list[int] = []  # indices whose place has been joined with others

        self._free: dict[int, list[int]] = {}  # indices by size, hollow ones first
        self._top = layout.ARENA_AT  # places below have been taken
        self._reserved = layout.ARENA_AT  # memory up to here has been reserved
        self.backed = 0  # bytes of real memory
        self.used = 0  # of these in blocks that are not free
        self._asked = 0  # how often the supervisor was asked for memory, or told of it
        self._outstanding = 0  # descriptors at the supervisor
        self._outstanding_elsewhere = 0  # of these, that name memory of devices
        self._collected = 0
        self._most_used = 0  # since _since
        self._since = 0.0  # 0: nothing to give back
        #: What lends memory of devices; the loop sets it.
        self.elsewhere: Callable[[], DeviceMemoryLender] = _nowhere
        #: Tickets of memory of devices that have come back.
        self.returned: deque[int] = deque()

    def take(self, size: int) -> Block:
        """Take a block for size bytes; PoolExhausted if there is no memory for it."""
        with self._alone:
            self._collect()
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

    def lend(self, block: Block) -> int:
        """Make the ticket for one descriptor that names block."""
        with self._alone:
            if self._outstanding == _SLOTS:
                self._collect()
                if self._outstanding == _SLOTS:
                    raise self._exhausted(0, f"{_SLOTS} tensors are still being sent")
            self._outstanding += 1
            self._references[block.index] += 1
            self._lent[block.index] += 1
            return block.index | self._generations[block.index] << 32

    def lend_elsewhere(self) -> None:
        """Count a descriptor that names memory of a device."""
        with self._alone:
            if self._outstanding == _SLOTS:
                self._collect()
                if self._outstanding == _SLOTS:
                    raise self._exhausted(0, f"{_SLOTS} tensors are still being sent")
            self._outstanding += 1
            self._outstanding_elsewhere += 1

    def collect(self) -> None:
        """Process returned tickets, for threads that wait in `returned`."""
        with self._alone:
            self._collect()

    def lent(self) -> bool:
        """Whether something of the pool is at the supervisor."""
        with self._alone:
            self._collect()
            return self._outstanding > 0

    def withdraw(self, ticket: int) -> None:
        """Take back a ticket that was not sent after all."""
        with self._alone:
            self._settle(ticket)

    def free(self) -> int:
        """The bytes that can still be taken, if the machine has them."""
        with self._alone:
            self._collect()
            return self._max - self.used

    def patience(self) -> int | None:
        """Give back memory that was not needed for a while; called before sleep.

        Returns the milliseconds after which another look is worth while, None if that is not before the next frame.
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
                return None
            if not self._since:
                self._since = now
                self._most_used = self.used
            return int((self._since + TRIM_AFTER_SECONDS - now) * 1000) + 1

    def _collect(self) -> None:
        """Process tickets returned by the supervisor, and blocks whose tensors have died."""
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
        """Write a place into the table."""
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
        """There is no place behind the last block: join free neighbours, and cut one out of them."""
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
        """Indices of free blocks, one behind the other, that have size bytes together."""
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
        raise self._exhausted(size, f"no place for {size} bytes in a file of {self._end}")

    def _keep_hollow(self, offset: int, size: int) -> None:
        index = self._enter(offset, size)
        self._hollow[index] = True
        self._free.setdefault(size, []).insert(0, index)

    def _reserve(self, offset: int, size: int, needed: int) -> int:
        """Reserve size bytes, or only the needed ones if memory is short. Returns the number."""
        reason = ""
        # A step ahead is optional; for the needed bytes free blocks are given up, in the end all of them.
        for amount, last_resort in ((size, False), (needed, False), (needed, True)):
            over = self.backed + amount - self._max
            if last_resort:
                over = self.backed - self.used
            if over > 0 and amount == needed:
                self._give_back(over)
            if self.backed + amount > self._max:
                reason = f"{needed} bytes more are wanted, {self.used} are in use, shm-max-byte-size allows {self._max}"
                continue
            if not self._granted(self.backed + amount):
                reason = (
                    f"{needed} bytes more are wanted, {self.used} are in use, and the server's memory for requests, "
                    "of which this is a part, is used up (--request-memory-byte-size)"
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
        """Whether size bytes may be reserved. The supervisor is asked if it has not allowed that many before."""
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
        """Say how many bytes are wanted in all; returns the number of the question."""
        self._asked += 1
        self._words[_WANTED] = total
        os.sched_yield()  # a full barrier: a reader that sees the number sees the bytes
        self._words[_ASKED] = self._asked
        self._channel.knock()
        return self._asked

    def _give_back(self, surplus: int) -> None:
        """Give back about surplus bytes: bytes reserved ahead, then free blocks, large and old ones first."""
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
        # By the mapping that a block of this place has; joined or reserved bytes may need several.
        steps = size if self._mappings.over(offset, size) else CELL
        for at in range(offset, offset + size, steps):
            length = min(steps, offset + size - at)
            mapping = self._mappings.over(at, length)
            if mapping is not None:  # else there is no room to say so, and it goes when the block is next given back
                mapping.map.madvise(mmap.MADV_REMOVE, at - mapping.start, length)

    def _map(self, start: int, size: int) -> mmap.mmap:
        return mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start)

    def _exhausted(self, needed: int, reason: str) -> PoolExhausted:
        return PoolExhausted(
            f"Failed to increase the shared memory pool size to {self.backed + needed} bytes. If you are running "
            "Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: " + reason
        )
