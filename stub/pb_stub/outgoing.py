"""Tensors sent to the supervisor: the placement of their bytes, and their descriptors.

EXECUTED and RESPONSE carry tensors of responses, INFER those of requests. An Outgoing is one such
frame during its construction. It keeps the loans that its descriptors refer to, so that no other
thread can return them before the frame is sent. When packed, it releases them; tickets of loans
without another owner travel in this frame.
"""

from __future__ import annotations

import struct
from typing import Any, Tuple

import numpy as np
from c_python_backend_utils.memory import DeviceMemory
from c_python_backend_utils.tensor import Tensor

from . import accelerator, layout, messages
from .channel import Channel
from .loans import ZERO_COPY_MIN, Loan, Loans
from .mappings import CELL, FileMapping
from .pool import Block, Pool
from .regions import ClientLoan
from .spin import Spin

MAX_INLINE = layout.MAX_INLINE
MAX_INLINE_TOTAL = layout.MAX_INLINE_TOTAL

_BYTE = np.dtype(np.uint8)

#: Encoders of a descriptor with its dimensions, by rank.
_pack_descriptor = tuple(struct.Struct(f"{messages.DESCRIPTOR.format}{rank}q").pack for rank in range(65))

PADDING = tuple(bytes(n) for n in range(16))

#: A placed tensor: index of its name, data type, shape, region, the bytes or their offset, their
#: number, ticket, element, number of the client's region.
Placed = Tuple[int, int, Tuple[int, ...], int, Any, int, int, int, int]


class Passed:
    """Value of a tensor's `_sent` if its bytes are an input's: they are referenced, not copied."""

    __slots__ = ("loan", "offset", "size")

    def __init__(self, loan: Loan, offset: int, size: int) -> None:
        self.loan = loan
        self.offset = offset
        self.size = size


def accelerate() -> None:
    """Replace functions by compiled ones."""
    accelerator.attach(Loan, Block, Loans, FileMapping, Pool, Passed, Spin, ZERO_COPY_MIN, CELL)


class Outgoing:
    """The tensors of one frame. For one thread; several frames may share tensors."""

    def __init__(self, channel: Channel, loans: Loans, pool: Pool) -> None:
        self._channel = channel
        self._loans = loans
        self._pool = pool
        self._inline_size = 0  # total tensor bytes inside the frame
        self._lent: list[int] = []  # tickets of blocks in our arena
        self._held: list[Loan] = []  # loans that descriptors refer to

    def place(self, index: int, tensor: Tensor) -> Placed:
        """Find or make a place for a tensor's bytes; index is that of its name.

        Raises PoolExhausted if there is no place, DeviceError if the device does not provide the
        bytes.
        """
        sent = tensor._sent
        if sent is None or self._is_others(sent):
            sent = self._settle(tensor)
        if isinstance(sent, bytes):
            if len(sent) <= MAX_INLINE:
                size = self._inline_size + ((len(sent) + 15) & ~15)
                if size <= MAX_INLINE_TOTAL:
                    self._inline_size = size
                    return index, tensor._code, tensor._shape, 0, sent, len(sent), 0, tensor._element, 0
            block = self._pool.take(len(sent))
            block.fill(sent)
            sent = block
        if isinstance(sent, Block):
            if tensor._origin is None:
                tensor._sent = sent
            ticket = self._pool.lend(sent)
            self._lent.append(ticket)
            region = layout.REGION_ARENA
        else:
            self._held.append(sent.loan)
            ticket = sent.loan.ticket
            region = layout.REGION_REQUESTS
        return index, tensor._code, tensor._shape, region, sent.offset, sent.size, ticket, tensor._element, 0

    def _is_others(self, sent: Any) -> bool:
        """Return whether an encoded form belongs to another instance in this process."""
        if isinstance(sent, Block):
            return not self._pool.owns(sent)
        return isinstance(sent, Passed) and not sent.loan.is_from(self._loans)

    def place_beside(self, index: int, tensor: Tensor, inline_size: int) -> Placed:
        """Like `place`, beside inline_size bytes that the accelerator has put into the frame."""
        before, self._inline_size = self._inline_size, inline_size
        try:
            return self.place(index, tensor)
        finally:
            self._inline_size = before

    def stay(self, index: int, tensor: Tensor) -> Placed | None:
        """Find a place on a tensor's device; None if it must be copied to the host."""
        data = tensor._data
        if not isinstance(data, DeviceMemory) or not data.nbytes or tensor._sent is not None:
            return None
        lent = self._pool.elsewhere().lend(data)
        if lent is None:
            return None
        number, offset, ticket = lent
        self._lent.append(ticket)
        return index, tensor._code, tensor._shape, layout.REGION_DEVICE, offset, data.nbytes, ticket, 0, number

    def _settle(self, tensor: Tensor) -> Any:
        """Determine the encoded form of a tensor, which later sends reuse."""
        data = tensor._data
        sent: Any
        if data is None:  # an unchanged input
            origin = tensor._origin
            if isinstance(origin, ClientLoan):
                # The supervisor does not read client memory.
                return self._copied(origin.array(tensor.name(), _BYTE, (origin.size,)))
            if isinstance(origin, Loan) and origin.is_from(self._loans):
                return Passed(origin, origin.offset, origin.size)
            return tensor._bytes()
        if isinstance(data, bytes):
            tensor._sent = data
            return data
        if isinstance(data, DeviceMemory):
            tensor._sent = sent = self._fetched(data)
            return sent
        sent = data.tobytes() if data.nbytes <= MAX_INLINE else self._passed(data) or self._copied(data)
        tensor._sent = sent
        return sent

    def _passed(self, data: np.ndarray) -> Any:
        """Detect an array that shows an unwritten input."""
        held = self._loans.holder(data)
        if held is None:
            return None
        loan, offset = held
        if not loan.offset <= offset <= offset + data.nbytes <= loan.offset + loan.size or loan.written():
            return None
        return Passed(loan, offset, data.nbytes)

    def _copied(self, data: np.ndarray) -> Block:
        block = self._pool.take(data.nbytes)
        # numpy releases the GIL during large copies, unlike memoryview.
        np.copyto(block.array(data.shape, data.dtype), data)
        return block

    def _fetched(self, data: DeviceMemory) -> bytes | Block:
        """Copy from a device to the place of the bytes, before the frame is published."""
        if data.nbytes <= MAX_INLINE:
            return data.read()
        block = self._pool.take(data.nbytes)
        data.copy_to_host(block.address())
        return block

    def withdraw(self) -> None:
        """Undo everything: the frame is not sent. May be called repeatedly."""
        lent, self._lent = self._lent, []
        for ticket in lent:
            self._pool.withdraw(ticket)
        self._held.clear()

    def retract(self, placed: list[Placed]) -> None:
        """Undo the last tensors: their response is not sent, but others are."""
        for output in placed:
            if output[3] in (layout.REGION_ARENA, layout.REGION_DEVICE):
                self._lent.remove(output[6])
                self._pool.withdraw(output[6])

    def let_go(self) -> list[int]:
        """Release the loans.

        Returns all pending tickets, for the frame. Called once, at the end.
        """
        channel = self._channel
        if self._held:
            return channel.collect_tickets(self._held.clear)
        return channel.take_tickets() if channel.tickets else []


def describe(placed: list[Placed], parts: list[bytes], inline: list[bytes], at: int) -> int:
    """Append descriptors to parts, and inline bytes to inline, the first of them at offset `at`.

    Both start and end at multiples of 16 from the frame's start; returns the end.
    """
    for index, data_type, shape, region, place, length, ticket, element, number in placed:
        offset = place
        if region == 0:
            offset = at
            inline.append(place)
            size = at + length
            at = (size + 15) & ~15
            if at != size:
                inline.append(PADDING[at - size])
        rank = len(shape)
        pack = _pack_descriptor[rank]
        parts.append(pack(index, data_type, rank, region, offset, length, ticket, element, number, *shape))
    return at
