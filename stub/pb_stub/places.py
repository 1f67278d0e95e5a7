"""Places: ranges of clients' regions into which outputs are written here, so that they are copied once and no more.

A region is mapped once more for that, shared and writable (Target), and no model sees this mapping; memory of devices
has targets of its own (deviceplaces). EXECUTE says where each output is wanted; Places writes one there, or says that
it cannot be: then the output goes to the arena like any other, and the supervisor copies it from there. It cannot be

* if it is small, of BYTES, too large for its place, or has been sent before;
* if its request is cancelled: the client may use its memory for something else. This is looked up right before the
  output is written; a copy that has begun ends;
* if an input lies there that the model, or an output that is written later, still shows. That an output is such an
  input, unchanged and at its own place, is as good as written;
* if the file has become too short, or there is no memory for its holes. That shows when the pages are made present,
  once for each range; a client that truncates its file behind that ends this process, which the supervisor understands.

Nothing of an output is kept here: a tensor that is sent once more is read once more.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import weakref
from typing import Any, Callable, Dict, Mapping, Protocol

import numpy as np
from c_python_backend_utils.datatypes import BYTES
from c_python_backend_utils.memory import DeviceMemory
from c_python_backend_utils.tensor import Tensor

from . import layout
from .errors import NotUnderstood
from .loans import _MAP_NORESERVE

_PAGE = mmap.PAGESIZE
_BYTE = np.dtype(np.uint8)

#: Makes the pages of a mapping present and writable, from Linux 5.14 on.
_MADV_POPULATE_WRITE = 23

#: The least size of an output that is written to its place. It is WriteFrom in backend/process/frames.
WRITE_MIN = 65536

#: Beyond so many ranges of a region it is forgotten which are present.
_MOST_RANGES = 256


class Target:
    """One region of a client, mapped to be written."""

    region = layout.REGION_CLIENT

    def __init__(self, fd: int, start: int, size: int) -> None:
        """Map size bytes at start of the file. The descriptor stays the caller's."""
        found = os.fstat(fd)
        if not size or found.st_size < start + size:
            raise OSError(errno.EINVAL, "the file is too short, or nothing is wanted of it")
        #: Which file it is: regions of several names may be parts of one.
        self.file = found.st_dev, found.st_ino
        self.start = start
        self.size = size
        shared = mmap.MAP_SHARED | _MAP_NORESERVE
        self._map = mmap.mmap(fd, size, flags=shared, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start)
        self._address: int = np.ndarray((1,), _BYTE, self._map).__array_interface__["data"][0]
        self._present: set[tuple[int, int]] = set()

    def least(self, _data: Any) -> int:
        """The least size of an output that is written."""
        return WRITE_MIN

    def put(self, tensor: Tensor, offset: int, size: int, inputs: Inputs) -> bool:
        """Copy an output to an offset, unless it lies there; False if that cannot be."""
        conflict = inputs.conflicts(tensor, self.file, self.start + offset, size)
        if conflict is None:
            return True
        source = None if conflict else inputs.bytes_of(tensor)
        if source is None or not self.prepare(offset, size):
            return False
        self.write(offset, source)
        return True

    def prepare(self, offset: int, size: int) -> bool:
        """Make the pages of a range present; False if the file does not have them, or cannot get them."""
        first = offset // _PAGE * _PAGE
        length = min(-(-(offset + size) // _PAGE) * _PAGE, len(self._map)) - first
        if (first, length) in self._present:
            return True
        try:
            self._map.madvise(_MADV_POPULATE_WRITE, first, length)
        except OSError as error:
            if error.errno != errno.EINVAL:  # which an older kernel says: it makes them present as they are written
                return False
        if len(self._present) >= _MOST_RANGES:
            self._present.clear()
        self._present.add((first, length))
        return True

    def write(self, offset: int, data: np.ndarray | DeviceMemory) -> None:
        """Copy an array to an offset, or the bytes of a device. Other threads run meanwhile."""
        if isinstance(data, DeviceMemory):
            data.copy_to_host(self._address + offset)
        elif data.flags.c_contiguous:  # as bytes, wherever the place begins
            np.copyto(np.ndarray((data.nbytes,), _BYTE, self._map, offset), np.asarray(data).reshape(-1).view(_BYTE))
        else:
            np.copyto(np.ndarray(data.shape, data.dtype, self._map, offset), data)


class Inputs(Protocol):
    """What Places asks about inputs that lie in regions. Regions answers."""

    #: Whether a request is cancelled, by its handle, as of now.
    gone: Callable[[int], bool]
    #: By ticket: inputs whose clients may change them when a response has left.
    alive: dict[int, weakref.ref[Any]]

    def conflicts(self, tensor: Tensor, file: tuple[int, int], begin: int, size: int) -> bool | None:
        """Whether inputs lie in a range of a file; None if the tensor is one of them, unchanged, and the very range."""

    def bytes_of(self, tensor: Tensor) -> np.ndarray | DeviceMemory | None:
        """Return the bytes of a tensor to be written; None if they would have to be copied first."""


class Writable(Protocol):
    """Client memory for outputs: a Target on the host, a deviceplaces.DeviceTarget on a device."""

    region: int  # its kind, for the frame
    size: int

    def least(self, data: Any) -> int:
        """The least size of an output that is written."""

    def put(self, tensor: Tensor, offset: int, size: int, inputs: Inputs) -> bool:
        """Copy an output to an offset; False if it cannot be written there."""


class Places(Dict[str, int]):
    """The outputs that a client wants, with their indices, and places of some of them. It is batch.Wanted."""

    __slots__ = ("_gate", "_handle", "_inputs", "_over", "_places", "_stay")

    def __init__(self, wanted: Mapping[str, int], handle: int, inputs: Inputs) -> None:
        super().__init__(wanted)
        self._handle = handle
        self._inputs = inputs
        self._gate = threading.Lock()  # between writes and the end
        self._over = False
        self._places: dict[str, tuple[Writable, int, int, int]] = {}
        self._stay: set[str] | None = set()  # None: all

    def add(self, name: str, target: Writable | None, number: int, offset: int, size: int) -> None:
        """Take a place out of EXECUTE."""
        if target is None or offset > target.size or size > target.size - offset:
            where = f"of {target.size}" if target else "which is not mapped for that"
            raise NotUnderstood(f"an output is wanted in {size} bytes at {offset} of region {number}, {where}")
        self._places[name] = target, number, offset, size

    def let_stay(self, name: str | None) -> None:
        """Learn that an output, or with None each, may stay on a device."""
        if name is None:
            self._stay = None
        elif self._stay is not None:
            self._stay.add(name)

    def stays(self, tensor: Tensor) -> bool:
        """Whether an output may stay on its device."""
        name: Any = tensor._name
        return self._stay is None or name in self._stay

    def write(self, tensor: Tensor) -> tuple[int, int, int, int] | None:
        """Write an output to its place: region of its kind, number, offset, bytes. None if it is to go to the arena.

        DeviceError if its bytes cannot be had of their device.
        """
        name: Any = tensor._name
        place = self._places.get(name)
        if place is None or tensor._sent is not None or tensor._code == BYTES:
            return None
        target, number, offset, room = place
        data = tensor._data
        size = tensor._size if data is None else len(data) if isinstance(data, bytes) else data.nbytes
        if not target.least(data) <= size <= room or self._inputs.gone(self._handle):
            return None
        with self._gate:
            if self._over or not target.put(tensor, offset, size, self._inputs):
                return None
            return target.region, number, offset, size

    def end(self) -> None:
        """The request is about to be answered: when this returns no thread writes to its places, and none will."""
        with self._gate:
            self._over = True
