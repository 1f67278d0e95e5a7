"""Places: ranges of clients' regions into which outputs are written directly, with only one copy.

For this, a region is mapped again, shared and writable (Target); models do not see this mapping.
Device memory has its own targets (deviceplaces). EXECUTE names the destination of each output.
Places writes the output there if possible. Otherwise it goes to the arena like any other, and the
supervisor copies it. It is not written

* if it is small, of type BYTES, too large for its place, or was sent before;
* if its request is cancelled, because the client may reuse its memory. This is checked right before
  the output is written; a copy in progress is completed;
* if the destination overlaps an input that the model, or an output written later, still shows. An
  output that is such an input, unchanged and in its own place, counts as written;
* if the file is too short, or there is no memory for its holes. This is detected when the pages are
  made present, once per range. A client that truncates its file later ends this process, which the
  supervisor recognises.

Nothing of an output is kept here: a tensor that is sent again is read again.
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

#: Makes the pages of a mapping present and writable, since Linux 5.14.
_MADV_POPULATE_WRITE = 23

#: The minimum size of an output that is written to its place. Equals WriteFrom in
#: backend/process/frames.
WRITE_MIN = 65536

#: Above this number of ranges in a region, the record of present ranges is cleared.
_MOST_RANGES = 256


class Target:
    """One region of a client, mapped writable."""

    region = layout.REGION_CLIENT

    def __init__(self, fd: int, start: int, size: int) -> None:
        """Map size bytes at start of the file. The caller still owns the descriptor."""
        found = os.fstat(fd)
        if not size or found.st_size < start + size:
            raise OSError(errno.EINVAL, "the file is too short, or the region is empty")
        #: Identifies the file: regions with different names may be parts of one file.
        self.file = found.st_dev, found.st_ino
        self.start = start
        self.size = size
        shared = mmap.MAP_SHARED | _MAP_NORESERVE
        self._map = mmap.mmap(fd, size, flags=shared, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start)
        self._address: int = np.ndarray((1,), _BYTE, self._map).__array_interface__["data"][0]
        self._present: set[tuple[int, int]] = set()

    def least(self, _data: Any) -> int:
        """Return the minimum size of an output to write."""
        return WRITE_MIN

    def put(self, tensor: Tensor, offset: int, size: int, inputs: Inputs) -> bool:
        """Copy an output to an offset, unless it is already there; False if this fails."""
        conflict = inputs.conflicts(tensor, self.file, self.start + offset, size)
        if conflict is None:
            return True
        source = None if conflict else inputs.bytes_of(tensor)
        if source is None or not self.prepare(offset, size):
            return False
        self.write(offset, source)
        return True

    def prepare(self, offset: int, size: int) -> bool:
        """Make the pages of a range present; False if the file or the memory is too small."""
        first = offset // _PAGE * _PAGE
        length = min(-(-(offset + size) // _PAGE) * _PAGE, len(self._map)) - first
        if (first, length) in self._present:
            return True
        try:
            self._map.madvise(_MADV_POPULATE_WRITE, first, length)
        except OSError as error:
            if error.errno != errno.EINVAL:  # an older kernel, on which writes make them present
                return False
        if len(self._present) >= _MOST_RANGES:
            self._present.clear()
        self._present.add((first, length))
        return True

    def write(self, offset: int, data: np.ndarray | DeviceMemory) -> None:
        """Copy an array, or the bytes of a device, to an offset, without the GIL."""
        if isinstance(data, DeviceMemory):
            data.copy_to_host(self._address + offset)
        elif data.flags.c_contiguous:  # as bytes, regardless of the place's alignment
            np.copyto(np.ndarray((data.nbytes,), _BYTE, self._map, offset), np.asarray(data).reshape(-1).view(_BYTE))
        else:
            np.copyto(np.ndarray(data.shape, data.dtype, self._map, offset), data)


class Inputs(Protocol):
    """Information about inputs in regions, implemented by Regions."""

    #: Returns whether the request with a handle is cancelled.
    gone: Callable[[int], bool]
    #: By ticket: inputs whose clients may change them after a response was sent.
    alive: dict[int, weakref.ref[Any]]

    def conflicts(self, tensor: Tensor, file: tuple[int, int], begin: int, size: int) -> bool | None:
        """Return whether inputs overlap a range of a file.

        None: tensor is that range, unchanged.
        """

    def bytes_of(self, tensor: Tensor) -> np.ndarray | DeviceMemory | None:
        """Return the bytes of a tensor to write; None if they would have to be copied first."""


class Writable(Protocol):
    """Client memory for outputs: a Target on the host, a deviceplaces.DeviceTarget on a device."""

    region: int  # its kind, for the frame
    size: int

    def least(self, data: Any) -> int:
        """Return the minimum size of an output to write."""

    def put(self, tensor: Tensor, offset: int, size: int, inputs: Inputs) -> bool:
        """Copy an output to an offset; False if it cannot be written there."""


class Places(Dict[str, int]):
    """The requested outputs with their indices, and the places of some of them. A batch.Wanted."""

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
        """Add a place from EXECUTE."""
        if target is None or offset > target.size or size > target.size - offset:
            where = f"of {target.size}" if target else "which is not mapped for that"
            raise NotUnderstood(f"an output is wanted in {size} bytes at {offset} of region {number}, {where}")
        self._places[name] = target, number, offset, size

    def let_stay(self, name: str | None) -> None:
        """Allow an output, or with None every output, to stay on a device."""
        if name is None:
            self._stay = None
        elif self._stay is not None:
            self._stay.add(name)

    def stays(self, tensor: Tensor) -> bool:
        """Return whether an output may stay on its device."""
        name: Any = tensor._name
        return self._stay is None or name in self._stay

    def write(self, tensor: Tensor) -> tuple[int, int, int, int] | None:
        """Write an output to its place.

        Returns region kind, number, offset, bytes; None for the arena. DeviceError if the device
        does not provide its bytes.
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
        """Prepare for the answer: after this, no thread writes to the places of the request."""
        with self._gate:
            self._over = True
