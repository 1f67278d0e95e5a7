"""BYTES tensors on the wire: each element is a 4-byte little-endian length and that many bytes, without padding.

Both directions look first whether all elements have one length. Tokens, hashes and fixed-width ids do, and then numpy,
marshal or one join does the work for all elements at once; else a loop in Python costs about 0.1 to 0.2 µs per element.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any

import numpy as np

_LENGTH = struct.Struct("<I")
#: Encoded lengths of short elements, by length.
_PREFIXES = [_LENGTH.pack(n) for n in range(1024)]
#: Up to here it is faster to compare the lengths of all elements in numpy; longer ones are copied less by a join.
_SHORT = 256


class Malformed(Exception):
    """Bytes that are no BYTES tensor; the text is what models see."""


INCOMPLETE = "Invalid bytes tensor data: incomplete length field"
OVERRUN = "Invalid bytes tensor data: string extends beyond buffer"


def encode(array: np.ndarray) -> tuple[bytes, int]:
    """Serialise an array of dtype object or S in C order.

    Returns the bytes and, if all elements have one length, that length plus 1, else 0. Elements that are exactly
    `bytes` are taken as they are, all others, numpy's and subclasses included, as the UTF-8 of their str().
    """
    elements: list[Any] = array.ravel().tolist()
    count = len(elements)
    if not count:
        return b"", 0
    kinds = list(map(type, elements))
    if kinds.count(bytes) != count:
        if kinds.count(str) == count:
            elements = list(map(str.encode, elements))
        else:
            elements = [e if type(e) is bytes else str(e).encode() for e in elements]
    first = len(elements[0])
    if 0 < first <= _SHORT and len(elements[-1]) == first:
        same = _encode_same(elements, first)
        if same is not None:
            return same, first + 1
    lengths = list(map(len, elements))
    if lengths.count(first) == count:
        prefix = _LENGTH.pack(first)
        return prefix + prefix.join(elements), first + 1
    parts: list[Any] = [None] * (2 * len(elements))
    try:
        parts[0::2] = map(_PREFIXES.__getitem__, lengths)
    except IndexError:
        parts[0::2] = map(_LENGTH.pack, lengths)
    parts[1::2] = elements
    return b"".join(parts), 0


def _encode_same(elements: list[bytes], length: int) -> bytes | None:
    """Serialise elements that are exactly `bytes` and all of one length; None if one has another length.

    marshal writes a list in one go: a head of 5 bytes, then for each element a letter, its length in 4 bytes as they
    are wanted here, and its bytes. Each place where an element begins, if those before it have the wanted length, says
    how long that element is: if all of them say that length, it is so.
    """
    data = marshal.dumps(elements, 2)
    count, step = len(elements), 4 + length
    if len(data) != 5 + count * (1 + step):
        return None
    wire: bytes = np.ndarray((count,), f"V{step}", data, 6, (1 + step,)).tobytes()
    return wire if (np.ndarray((count,), "<u4", wire, 0, (step,)) == length).all() else None


def decode(data: bytes) -> np.ndarray:
    """Make the one-dimensional object array of bytes; Malformed if data ends inside an element."""
    size = len(data)
    if size < 4:
        if size:
            raise Malformed(INCOMPLETE)
        return np.empty(0, np.object_)
    length: int = _LENGTH.unpack_from(data)[0]
    step = 4 + length
    if length and size % step == 0:
        count = size // step
        lengths = np.ndarray((count,), "<u4", data, 0, (step,))
        if (lengths == length).all():
            # Void elements become bytes objects, trailing zeros included.
            same: np.ndarray = np.ndarray((count,), f"V{length}", data, 4, (step,)).astype(np.object_)
            return same
    elements: list[bytes] = []
    append = elements.append
    unpack = _LENGTH.unpack_from
    at = 0
    try:
        while at < size:
            (length,) = unpack(data, at)
            at += 4
            end = at + length
            append(data[at:end])
            at = end
    except struct.error:
        raise Malformed(INCOMPLETE) from None
    if at != size:
        raise Malformed(OVERRUN)
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array
