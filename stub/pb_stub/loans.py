"""Loans: blocks of *requests* that the supervisor has lent to this stub, and the arrays over them.

The file is mapped copy-on-write: if a model writes to an input, only pages of this process change.
This has three consequences.

* A loan lasts until the last array over it is deleted, including views: numpy makes each view keep
  the first array alive.
* Before a block is returned, its private pages must be dropped, or they would hide the next request
  in it. The kernel knows which pages are private (/proc/self/pagemap). This is not read if the
  process has had no page fault since.
* Writing costs a fault and a copy per page, much more than copying the block at once. An input that
  was written is therefore copied the next COPIES_AFTER_WRITE times, then tried again: models that
  write in place do so every time.

Inputs below ZERO_COPY_MIN are also copied: a view costs about 2 µs of bookkeeping.
"""

from __future__ import annotations

import mmap
import os
import resource
import threading
import weakref
from typing import Callable

import numpy as np

from . import accelerator, layout
from .channel import Channel
from .mappings import FileMapping, FileMappings

ZERO_COPY_MIN = 65536
COPIES_AFTER_WRITE = 64

_PAGE = layout.PAGE
_PRESENT = np.uint64(1 << 63)
_SWAPPED = np.uint64(1 << 62)
_OF_FILE = np.uint64(1 << 61)

#: In mmap since 3.13. Without it, a system that does not overcommit refuses to map the large,
#: sparse file.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


#: Held while a loan is claimed. Signal handlers may interrupt that.
_claiming = threading.RLock()
if hasattr(_claiming, "_at_fork_reinit"):  # since Python 3.9
    os.register_at_fork(after_in_child=_claiming._at_fork_reinit)


class Loan:
    """A block or part of one, with a ticket. It is returned when this object is deleted."""

    __slots__ = ("_array", "_faults", "_key", "_loans", "_name", "mapping", "offset", "size", "ticket")

    _array: weakref.ref[np.ndarray]  # the array that all views of the loan keep alive
    _key: int  # its id

    def __init__(self, loans: Loans, ticket: int, offset: int, size: int) -> None:
        self._loans = loans
        self._name = ""
        self._faults = 0
        self.ticket = ticket
        self.offset = offset  # in the file
        self.size = size
        self.mapping: FileMapping | None = None  # the mapping of the array over it, if there is or was such an array

    def is_from(self, loans: Loans) -> bool:
        """Return whether loans made this one: not those of another instance in this process."""
        return self._loans is loans

    def array(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Make a private, writable array of the bytes as received."""
        loans = self._loans
        if self.mapping is not None:
            return self._copy(None, dtype, shape)
        mapping = loans.mapping(self.offset, self.size)
        if mapping is None or self.offset % dtype.itemsize or not loans.lends_views(name, self):
            return self._copy(mapping, dtype, shape)
        if not self._claim(mapping):
            return self._copy(None, dtype, shape)
        self._name = name
        self._faults = loans.faults()
        array: np.ndarray = np.ndarray(shape, dtype, mapping.map, self.offset - mapping.start)
        # The array keeps the loan.
        self._key = id(array)  # not its base: numpy sets that to the mapping, which all share
        self._array = weakref.ref(array, self._died)
        loans.lent[self._key] = self
        return array

    def _claim(self, mapping: FileMapping) -> bool:
        """Set the mapping; False if another thread has done so, which makes the array over it."""
        if accelerator.module is not None:
            return bool(accelerator.module.claim_mapping(self, mapping))
        with _claiming:
            if self.mapping is None:
                self.mapping = mapping
                return True
            return False

    def _died(self, _: weakref.ref[np.ndarray]) -> None:
        # Weak references are notified before the array's memory is freed: the key is still unique.
        del self._loans.lent[self._key]

    def _copy(self, mapping: FileMapping | None, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        array: np.ndarray
        if mapping is not None:
            array = np.ndarray(shape, dtype, mapping.map, self.offset - mapping.start).copy()
        else:
            buffer = bytearray(self.size)
            self._loans.read_into(buffer, self.offset)
            array = np.ndarray(shape, dtype, buffer)
        return array

    def read(self) -> bytes:
        """Copy the bytes as received."""
        mapping = self._loans.mapping(self.offset, self.size) if self.mapping is None else None
        if mapping is not None:
            at = self.offset - mapping.start
            return mapping.map[at : at + self.size]
        buffer = bytearray(self.size)
        self._loans.read_into(buffer, self.offset)
        return bytes(buffer)

    def written(self) -> bool:
        """Return whether the model may have written to the array over the mapping."""
        mapping, loans = self.mapping, self._loans
        return mapping is not None and loans.faults() != self._faults and loans.private(mapping, self.offset, self.size)

    def __del__(self) -> None:
        loans = self._loans
        if loans.channel.foreign:
            return
        if self.written():  # no array is left over the mapping
            loans.clean(self)
        loans.channel.give_back(self.ticket)


class Loans:
    """The file *requests* as this stub sees it."""

    __slots__ = ("_copying", "_fd", "_mapped", "_pagemap", "channel", "lent", "mapping", "pagemap", "size")

    def __init__(self, channel: Channel, fd: int) -> None:
        self.channel = channel
        self._fd = fd
        self.size = size = os.fstat(fd).st_size
        self.pagemap = self._pagemap = _open_pagemap()
        mappings = FileMappings(size, self._map)
        self.mapping: Callable[[int, int], FileMapping | None] = mappings.over
        self._mapped = mappings.made
        #: The loans with an array over the mapping, by its id.
        self.lent: dict[int, Loan] = {}
        self._copying: dict[str, int] = {}  # by name of the input: number of copies left

    def _map(self, start: int, size: int) -> mmap.mmap:
        if self._pagemap is not None:
            try:
                private = mmap.MAP_PRIVATE | _MAP_NORESERVE
                access = mmap.PROT_READ | mmap.PROT_WRITE
                return mmap.mmap(self._fd, size, flags=private, prot=access, offset=start)
            except OSError:
                # Strict memory accounting, or a limit on data address space: inputs are always
                # copied.
                self._pagemap = None
        return mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=start)

    def lends_views(self, name: str, loan: Loan) -> bool:
        """Decide whether an input gets an array over the mapping, or a copy."""
        if loan.size < ZERO_COPY_MIN or self._pagemap is None:
            return False
        left = self._copying.get(name, 0)
        if left:
            self._copying[name] = left - 1
            return False
        return True

    def read_into(self, buffer: bytearray, offset: int) -> None:
        """Read from the file itself, not from private pages."""
        if self._fd < 0:
            raise RuntimeError(_ENDED)
        at = 0
        view = memoryview(buffer)
        while at < len(buffer):
            count = os.preadv(self._fd, [view[at:]], offset + at)
            if not count:
                raise EOFError(f"requests ends at {offset + at}, want {len(buffer) - at} bytes more")
            at += count

    def detach(self) -> None:
        """Let existing arrays keep their bytes when the supervisor reuses the blocks.

        A page becomes private when it is written. Tensors whose bytes were not read have none any
        more.
        """
        for loan in list(self.lent.values()):
            mapping = loan.mapping
            assert mapping is not None
            first = (loan.offset - mapping.start) // _PAGE * _PAGE
            for at in range(first, loan.offset - mapping.start + loan.size, _PAGE):
                mapping.map[at] = mapping.map[at]
        self._pagemap = None
        self._fd = -1
        self.mapping = _no_mapping

    def holder(self, array: np.ndarray) -> tuple[Loan, int] | None:
        """Return the loan whose bytes array shows, and their offset; None for other memory."""
        shown = array
        while isinstance(shown.base, np.ndarray):
            shown = shown.base
        loan = self.lent.get(id(shown))
        if loan is None:
            return None
        assert loan.mapping is not None
        return loan, _address(array) - loan.mapping.address + loan.mapping.start

    @staticmethod
    def faults() -> int:
        """Return the page faults of this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_minflt + usage.ru_majflt  # a first write to a swapped-out page causes a major fault

    if accelerator.module is not None:
        faults = staticmethod(accelerator.module.faults)

    def private(self, mapping: FileMapping, offset: int, size: int) -> bool:
        """Return whether any page of the range is private to this process."""
        if self._pagemap is None:
            return True
        address = mapping.address + offset - mapping.start
        first = address // _PAGE
        last = (address + size - 1) // _PAGE
        try:
            raw = os.pread(self._pagemap, (last - first + 1) * 8, first * 8)
        except OSError:
            self._pagemap = None  # perhaps the model closed it: no more views
            return True
        entries = np.frombuffer(raw, np.uint64)
        of_file = (entries & (_PRESENT | _OF_FILE)) == (_PRESENT | _OF_FILE)
        untouched = (entries & (_PRESENT | _SWAPPED)) == 0
        return not bool((of_file | untouched).all())

    def clean(self, loan: Loan) -> None:
        """Drop the private pages of a loan without arrays, except pages that other arrays show."""
        self._copying[loan._name] = COPIES_AFTER_WRITE
        mapping = loan.mapping
        assert mapping is not None
        offset = loan.offset
        start = offset // _PAGE * _PAGE
        end = -(-(offset + loan.size) // _PAGE) * _PAGE
        # Tensors of one request may be adjacent in one block. The rest is released with the last of
        # them.
        for other in list(self.lent.values()):
            if other.mapping is not mapping:
                continue  # with other pages
            if other.offset <= offset and other.offset + other.size > start:
                start += _PAGE
            elif other.offset > offset and other.offset < end:
                end -= _PAGE
        if start < end:
            mapping.map.madvise(mmap.MADV_DONTNEED, start - mapping.start, end - start)


_ENDED = "the instance that received this tensor has ended before its bytes were read"


def _no_mapping(_offset: int, _size: int) -> FileMapping:
    raise RuntimeError(_ENDED)


def _address(array: np.ndarray) -> int:
    if accelerator.module is not None and array.flags.c_contiguous:
        at: int = accelerator.module.address(array)
        return at
    address: int = array.__array_interface__["data"][0]
    return address


_pagemaps: list[int] = []  # at most one, for all instances of this process


def _open_pagemap() -> int | None:
    if not _pagemaps:
        try:
            _pagemaps.append(os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return None
    return _pagemaps[0]
