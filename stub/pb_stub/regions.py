"""Regions: files of clients that this stub has mapped, so that large inputs are not copied.

The supervisor sends a descriptor through a socket and then MAP through the ring, both with the
region's number. A region is mapped copy-on-write, once, and its inputs are lent like those of
*requests* (see loans), with three differences.

* The client may write to its memory, or truncate the file, at any time. It should not change an
  input before the response arrives. Inputs that the model keeps longer are *frozen* before the
  response is sent: their pages become private to this process. If the file is truncated meanwhile,
  an access ends this process, which the supervisor recognises.
* Two requests may name the same bytes. The second gets a copy, or each would see the model's writes
  to the other's array. Copies are read from the file, not from private pages, and cannot fault.
* An input is not passed on by reference: it is copied for the supervisor like any other array.

A region that receives outputs is mapped again, with a separate number (see places).
"""

from __future__ import annotations

import array
import errno
import mmap
import os
import socket
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

import numpy as np
from c_python_backend_utils.error import TritonModelException
from c_python_backend_utils.memory import DeviceMemory
from c_python_backend_utils.tensor import Tensor

from . import messages
from .channel import Channel
from .errors import NotUnderstood
from .loans import _MAP_NORESERVE, Loan, Loans
from .mappings import FileMapping
from .places import Places, Target

if TYPE_CHECKING:
    from .deviceloans import ClientBorrowed

_PAGE = mmap.PAGESIZE

#: Makes the pages of a private mapping private to this process, since Linux 5.14, without changing
#: them.
_MADV_POPULATE_WRITE = 23

_TRUNCATED = "the client has truncated the region of shared memory that has this input"


class ClientLoan(Loan):
    """An input in a client's region, with a ticket, returned on deletion or freezing."""

    __slots__ = ("__weakref__", "_kept", "_region")

    def __init__(self, region: Region, ticket: int, offset: int, size: int) -> None:
        super().__init__(region, ticket, offset, size)
        self._region = region
        self._kept: bytes | None = None  # for a frozen loan without an array
        region.alive[ticket] = weakref.ref(self)

    def array(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        if self._kept is not None:
            kept: np.ndarray = np.ndarray(shape, dtype, bytearray(self._kept))
            return kept
        return super().array(name, dtype, shape)

    def _copy(self, _: FileMapping | None, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        return super()._copy(self._frozen_mapping(), dtype, shape)

    def read(self) -> bytes:
        """Copy the bytes as received."""
        if self._kept is not None:
            return self._kept
        mapping = self._frozen_mapping()
        if mapping is not None:
            return mapping.map[self.offset : self.offset + self.size]
        buffer = bytearray(self.size)
        self._region.read_into(buffer, self.offset)
        return bytes(buffer)

    def _frozen_mapping(self) -> FileMapping | None:
        """Return the mapping of a loan whose pages are private; the file may have changed."""
        return None if self.ticket in self._region.alive else self.mapping

    def lies_in(self, file: tuple[int, int], begin: int, size: int) -> bool:
        """Return whether a range of a file overlaps these bytes."""
        region = self._region
        first = region.start + self.offset
        return region.file == file and first < begin + size and begin < first + self.size

    def is_range(self, begin: int, size: int) -> bool:
        """Return whether the bytes are exactly this range of their file."""
        return self._region.start + self.offset == begin and self.size == size

    def shown_by(self, data: np.ndarray) -> bool:
        """Return whether an array shows all of the bytes, unchanged."""
        held = self._region.holder(data)
        if held is None or held[0] is not self:
            return False
        return held[1] == self.offset and data.nbytes == self.size and data.flags.c_contiguous and not self.written()

    def as_came(self) -> np.ndarray | None:
        """Return the unchanged bytes in their mapping; None if they must be read from the file."""
        mapping = self.mapping or self._region.mapping(self.offset, self.size)
        if mapping is None or self._kept is not None or self.written():
            return None
        array: np.ndarray = np.ndarray((self.size,), np.uint8, mapping.map, self.offset - mapping.start)
        return array

    def freeze(self) -> None:
        """Make the bytes private for the arrays over them, and return the loan to the client."""
        mapping = self.mapping
        try:
            if mapping is None:
                self._kept = self.read()
            else:
                _own(mapping, self.offset, self.size)
        except (OSError, TritonModelException):
            pass  # the file is too short: nothing is left to keep
        self._return()

    def _return(self) -> None:
        # Several threads may freeze the same loan; only the thread that removes it from the dict
        # returns the ticket.
        if self._region.alive.pop(self.ticket, None) is not None:
            self._region.channel.give_back(self.ticket)

    def __del__(self) -> None:
        region = self._region
        if region.channel.foreign:
            return
        if self.written():
            region.clean(self)
        self._return()


def _own(mapping: FileMapping, offset: int, size: int) -> None:
    """Make the pages of a range private to this process."""
    first = offset // _PAGE * _PAGE
    end = min(-(-(offset + size) // _PAGE) * _PAGE, len(mapping.map))
    try:
        mapping.map.madvise(_MADV_POPULATE_WRITE, first, end - first)
    except OSError as error:
        if error.errno == errno.EFAULT:
            raise
        pages: np.ndarray = np.ndarray((end - first,), np.uint8, mapping.map, first)[::_PAGE]
        np.bitwise_or(pages, 0, out=pages)  # a write that changes nothing


class Region(Loans):
    """One region of a client, entirely in one mapping."""

    # Not through Loans.__init__, which uses mappings; all regions share one descriptor of /proc.
    def __init__(self, of: Regions, fd: int, start: int, size: int) -> None:
        """Map size bytes at start of the file.

        The region owns the descriptor, even after an error.
        """
        self._fd = fd
        self.channel = of.channel
        self.size = size
        self.alive = of.alive
        self.start = start
        self._pagemap = of.pagemap
        self.lent = {}
        self._copying = {}
        if self._pagemap is None:
            raise OSError(errno.ENOSYS, "the pages of this process cannot be inspected")
        found = os.fstat(fd)
        if not size or found.st_size < start + size:
            raise OSError(errno.EINVAL, "the file is too short, or the region is empty")
        self.file = found.st_dev, found.st_ino
        private = mmap.MAP_PRIVATE | _MAP_NORESERVE
        mapped = mmap.mmap(fd, size, flags=private, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start)
        whole = FileMapping(0, mapped)

        end = size

        def over(offset: int, size: int) -> FileMapping | None:
            return whole if offset + size <= end else None

        self.mapping = over  # not a method, which would form a cycle that keeps the region alive

    def lends_views(self, name: str, loan: Loan) -> bool:
        first, last = loan.offset // _PAGE, (loan.offset + loan.size - 1) // _PAGE
        for other in list(self.lent.values()):
            if other.offset // _PAGE <= last and first <= (other.offset + other.size - 1) // _PAGE:
                return False
        return super().lends_views(name, loan)

    def read_into(self, buffer: bytearray, offset: int) -> None:
        try:
            super().read_into(buffer, self.start + offset)
        except EOFError:
            raise TritonModelException(_TRUNCATED) from None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # also during interpreter shutdown
        try:
            close(self._fd)
        except OSError:
            pass  # the model has closed it


class Regions:
    """All regions of clients that this stub has mapped, by number."""

    def __init__(self, channel: Channel, pagemap: int | None, fd: int) -> None:
        self.channel = channel
        self.pagemap = pagemap
        self._socket = socket.socket(fileno=fd) if fd >= 0 else None
        self._regions: dict[int, Region] = {}
        self._targets: dict[int, Target] = {}
        self.gone: Callable[[int], bool] = lambda _handle: False
        #: By ticket: loans not yet returned to the supervisor.
        self.alive: dict[int, weakref.ref[ClientLoan | ClientBorrowed]] = {}

    def loan(self, number: int, ticket: int, offset: int, size: int) -> ClientLoan:
        """Make the loan of an input in a region."""
        region = self._regions.get(number)
        if region is None or offset > region.size or size > region.size - offset or not size:
            self.channel.give_back(ticket)
            where = f"of {region.size}" if region else "which is not mapped"
            raise NotUnderstood(f"an input has {size} bytes at {offset} of region {number}, {where}")
        return ClientLoan(region, ticket, offset, size)

    def place(self, places: Places, name: str, number: int, offset: int, size: int) -> None:
        """Add a place of an output."""
        places.add(name, self._targets.get(number), number, offset, size)

    def conflicts(self, tensor: Tensor, file: tuple[int, int], begin: int, size: int) -> bool | None:
        found = [loan for loan in self._living() if isinstance(loan, ClientLoan) and loan.lies_in(file, begin, size)]
        data = tensor._data
        for loan in found:
            if not loan.is_range(begin, size):
                continue
            if data is None and tensor._origin is loan and not loan.written():
                return None
            if isinstance(data, np.ndarray) and loan.shown_by(data):
                return None
        return bool(found)

    def bytes_of(self, tensor: Tensor) -> np.ndarray | DeviceMemory | None:
        data = tensor._data
        if data is not None and not isinstance(data, bytes):
            return data
        origin = tensor._origin
        return origin.as_came() if isinstance(origin, ClientLoan) else None

    def freeze(self) -> None:
        """Freeze remaining inputs before a response is sent, so that clients cannot change them."""
        for loan in self._living():
            loan.freeze()

    def _living(self) -> Iterator[ClientLoan | ClientBorrowed]:
        for reference in list(self.alive.values()):
            loan = reference()
            if loan is not None:
                yield loan

    def map(self, frame: bytes) -> None:
        """Handle MAP: map the region whose descriptor has arrived, and answer."""
        number, start, size, writable = messages.region_to_map(frame)
        done = self._take(number, start, size, writable)
        self._answer(number, messages.MAP_DONE if done else messages.MAP_REFUSED)

    def unmap(self, frame: bytes) -> None:
        """Handle UNMAP. The memory is released with the last array over it."""
        number = messages.HEADER.unpack_from(frame)[5]
        self._regions.pop(number, None)
        self._targets.pop(number, None)
        self._answer(number, messages.MAP_ENDED)

    def _answer(self, number: int, status: int) -> None:
        # Any thread may have read the frame, even the holder of the lock for sending.
        self.channel.post(messages.word(messages.MAPPED, self.channel.life, number, status))

    def _take(self, number: int, start: int, size: int, writable: bool) -> bool:
        fd = self._receive(number)
        if fd < 0:
            return False
        try:
            if not writable:
                self._regions[number] = Region(self, fd, start, size)  # which owns the descriptor from here on
                return True
            try:
                self._targets[number] = Target(fd, start, size)
            finally:
                os.close(fd)
        except (OSError, ValueError, OverflowError, MemoryError):
            return False
        return True

    def _receive(self, number: int) -> int:
        """Receive the descriptor of a region; -1 if it has not arrived. Others are discarded."""
        if self._socket is None:
            return -1
        while True:
            try:
                data, fds = _packet(self._socket)
            except OSError:
                return -1
            if not data:
                return -1
            for fd in fds[1:]:
                os.close(fd)
            if fds and data == number.to_bytes(4, "little"):
                return fds[0]
            if fds:
                os.close(fds[0])


def _packet(near: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    flags: Any = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
    data, ancillary, _, _ = near.recvmsg(16, socket.CMSG_SPACE(fds.itemsize), flags)
    for level, kind, raw in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(raw[: len(raw) // fds.itemsize * fds.itemsize])
    return data, fds.tolist()
