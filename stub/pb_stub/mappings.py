"""Mappings of the supervisor's large, sparse files.

A mapping counts towards a limit on address space (RLIMIT_AS) even without memory, and the files
have their maximum size from the start. So a part is mapped for its first block, and stays mapped:
blocks are reused, and mapped memory is much cheaper.

    file      |  cell  |  cell  |  cell  |
    mappings  |------ 0 --------|
                       |------ 1 --------|      a block begins in one cell and ends in it or in the next

Larger blocks have their own mappings, with the required number of cells. Mappings overlap. A
private mapping has its own copies of pages written through it, so a loan is only read through one
mapping.
"""

from __future__ import annotations

import mmap
import resource
from typing import Callable

import numpy as np

#: Bytes of a cell. Two of them are mapped for the first block, even a small one.
CELL = 32 << 20


class FileMapping:
    """A part of the file."""

    __slots__ = ("address", "map", "start")

    def __init__(self, start: int, mapped: mmap.mmap) -> None:
        self.start = start  # offset in the file
        self.map = mapped
        self.address: int = np.ndarray((1,), np.uint8, mapped).__array_interface__["data"][0]


class FileMappings:
    """All mappings of one file."""

    def __init__(self, size: int, make: Callable[[int, int], mmap.mmap]) -> None:
        self._size = size
        self._make = make
        #: By the number of the first cell; large ones by a pair of numbers.
        self.made: dict[int | tuple[int, int], FileMapping] = {}
        self.refused = ""  # why the last mapping failed

    def over(self, offset: int, size: int) -> FileMapping | None:
        """Return the mapping for a block, always the same; None if it cannot be mapped."""
        key = offset // CELL if size <= CELL else (offset // CELL, -(-size // CELL))
        return self.made.get(key) or self._open(key)

    def _open(self, key: int | tuple[int, int]) -> FileMapping | None:
        first, cells = (key, 1) if isinstance(key, int) else key
        start = first * CELL
        length = min((cells + 1) * CELL, self._size - start)
        try:
            mapping = FileMapping(start, self._make(start, length))
        except (OSError, MemoryError, ValueError) as error:
            self.refused = f"{getattr(error, 'strerror', None) or error}{limits(length)}"
            return None
        self.made[key] = mapping
        return mapping


def limits(wanted: int = 0) -> str:
    """Return limits on this process's memory, for an error that they may have caused, or ""."""
    try:
        with open("/proc/self/statm") as statm:
            fields = statm.read().split()
        used = {"RLIMIT_AS": int(fields[0]) * mmap.PAGESIZE, "RLIMIT_DATA": int(fields[5]) * mmap.PAGESIZE}
    except (OSError, ValueError, IndexError, MemoryError):
        return ""
    told = []
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            more = f", {wanted} more are wanted" if wanted else ""
            told.append(f"{name} is {limit} bytes, {used[name]} are in use{more}")
    return f" ({'; '.join(told)})" if told else ""
