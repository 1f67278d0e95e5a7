"""Encoded BYTES tensors: each element is a 4-byte little-endian length and its bytes, unpadded.

Both directions first check whether all elements have the same length, as tokens, hashes and
fixed-width ids do. If so, numpy, marshal or a single join processes all elements at once. Otherwise
a Python loop takes about 0.1 to 0.2 µs per element.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any

import numpy as np

_LENGTH = struct.Struct("<I")
#: Encoded lengths of short elements, by length.
_PREFIXES = [_LENGTH.pack(n) for n in range(1024)]
#: Up to this length, comparing the lengths of all elements in numpy is faster; for longer elements,
#: a join copies less.
_SHORT = 256


#: The stub's accelerator (docs/accelerator.md), or None.
fast: Any = None


class Malformed(Exception):
    """The bytes are not a BYTES tensor; models see the text."""


INCOMPLETE = "Invalid bytes tensor data: incomplete length field"
OVERRUN = "Invalid bytes tensor data: string extends beyond buffer"


def encode(array: np.ndarray) -> tuple[bytes, int]:
    """Serialise an array of dtype object or S in C order.

    Returns the bytes and, if all elements have the same length, that length plus 1, else 0.
    Elements of type `bytes` are copied as they are. All others, including numpy types and
    subclasses, become the UTF-8 of their str().
    """
    elements: list[Any] = array.ravel().tolist()
    if fast is not None:
        pair: tuple[bytes, int] | None = fast.encode_strings(elements)
        if pair is not None:
            return pair
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
    """Serialise elements of type `bytes` that all have this length; None if any length differs.

    marshal writes a list at once: a header of 5 bytes, then for each element a letter, its 4-byte
    length and its bytes. At each offset where an element starts if all lengths are as expected, the
    encoded length is checked: if all match, the lengths are as expected.
    """
    data = marshal.dumps(elements, 2)
    count, step = len(elements), 4 + length
    if len(data) != 5 + count * (1 + step):
        return None
    wire: bytes = np.ndarray((count,), f"V{step}", data, 6, (1 + step,)).tobytes()
    return wire if (np.ndarray((count,), "<u4", wire, 0, (step,)) == length).all() else None


def decode(data: bytes) -> np.ndarray:
    """Make a one-dimensional object array of bytes; Malformed if the data is truncated."""
    if fast is not None and data.__class__ is bytes:
        return _decode_fast(data)
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


def _decode_fast(data: bytes) -> np.ndarray:
    count = fast.count_strings(data)
    if count < 0:
        raise Malformed(INCOMPLETE if count == -1 else OVERRUN)
    array: np.ndarray = np.empty(count, np.object_)
    fast.fill_strings(data, array)
    return array
