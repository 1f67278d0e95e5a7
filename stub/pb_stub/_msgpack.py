"""The subset of MessagePack that messages use: nil, bool, integers, float, str, bin, array, map.

Pure Python and small, because the stub adds no package to the user's interpreter. Request messages
do not use it.
"""

from __future__ import annotations

import struct
from typing import Any, Callable


class Malformed(Exception):
    """The bytes are not valid MessagePack, or have more than one value."""


def pack(value: Any) -> bytes:
    """Encode a value; TypeError for types that messages do not use."""
    parts: list[bytes] = []
    _pack(value, parts.append)
    return b"".join(parts)


def _pack(value: Any, put: Callable[[bytes], None]) -> None:
    if value is None:
        put(b"\xc0")
    elif isinstance(value, bool):
        put(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        put(_integer(value))
    elif isinstance(value, float):
        put(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        raw = value.encode("utf-8", "backslashreplace")  # lone surrogates would not be valid UTF-8
        put(_length(len(raw), 0xA0, 32, (0xD9, 0xDA, 0xDB)))
        put(raw)
    elif isinstance(value, (bytes, bytearray)):
        put(_length(len(value), 0, 0, (0xC4, 0xC5, 0xC6)))
        put(bytes(value))
    elif isinstance(value, (list, tuple)):
        put(_length(len(value), 0x90, 16, (None, 0xDC, 0xDD)))
        for item in value:
            _pack(item, put)
    elif isinstance(value, dict):
        put(_length(len(value), 0x80, 16, (None, 0xDE, 0xDF)))
        for key, item in value.items():
            _pack(key, put)
            _pack(item, put)
    else:
        raise TypeError(f"no MessagePack for {type(value).__name__}")


def _integer(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack("b", value) if value < 0 else struct.pack("B", value)
    for code, form, low, high in _INTEGERS:
        if low <= value <= high:
            return struct.pack(form, code, value)
    raise TypeError(f"integer {value} has more than 64 bits")


_INTEGERS = (
    (0xCC, ">BB", 0, 2**8 - 1),
    (0xCD, ">BH", 0, 2**16 - 1),
    (0xCE, ">BI", 0, 2**32 - 1),
    (0xCF, ">BQ", 0, 2**64 - 1),
    (0xD0, ">Bb", -(2**7), -1),
    (0xD1, ">Bh", -(2**15), -1),
    (0xD2, ">Bi", -(2**31), -1),
    (0xD3, ">Bq", -(2**63), -1),
)


def _length(size: int, short: int, short_limit: int, codes: tuple[Any, int, int]) -> bytes:
    """Encode a length: inside the first byte, or after one of three codes in 1, 2 or 4 bytes."""
    if size < short_limit:
        return struct.pack("B", short | size)
    if codes[0] is not None and size < 2**8:
        return struct.pack(">BB", codes[0], size)
    if size < 2**16:
        return struct.pack(">BH", codes[1], size)
    return struct.pack(">BI", codes[2], size)


def unpack(data: bytes) -> Any:
    """Decode exactly one value."""
    try:
        value, end = _unpack(data, 0, 0)
    except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:  # TypeError: unhashable key
        raise Malformed(f"MessagePack of {len(data)} bytes: {error}") from error
    if end != len(data):
        raise Malformed(f"MessagePack of {len(data)} bytes: value ends at {end}")
    return value


_MAX_DEPTH = 32

_NUMBERS: dict[int, struct.Struct] = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
#: The kind of the following value, and the size of its length field.
_SIZED = {
    0xC4: ("bin", ">B"),
    0xC5: ("bin", ">H"),
    0xC6: ("bin", ">I"),
    0xD9: ("str", ">B"),
    0xDA: ("str", ">H"),
    0xDB: ("str", ">I"),
    0xDC: ("array", ">H"),
    0xDD: ("array", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > _MAX_DEPTH:
        raise Malformed(f"MessagePack nests deeper than {_MAX_DEPTH}")
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        form = _NUMBERS[first]
        return form.unpack_from(data, at)[0], at + form.size
    if first < 0x90:
        kind, size = "map", first & 15
    elif first < 0xA0:
        kind, size = "array", first & 15
    elif first < 0xC0:
        kind, size = "str", first & 31
    elif first in _SIZED:
        kind, width = _SIZED[first]
        size = struct.unpack_from(width, data, at)[0]
        at += struct.calcsize(width)
    else:
        raise Malformed(f"MessagePack code {first:#x} at {at - 1} is not used here")
    if kind == "array":
        items = []
        for _ in range(size):
            item, at = _unpack(data, at, depth + 1)
            items.append(item)
        return items, at
    if kind == "map":
        fields = {}
        for _ in range(size):
            key, at = _unpack(data, at, depth + 1)
            fields[key], at = _unpack(data, at, depth + 1)
        return fields, at
    end = at + size
    if end > len(data):
        raise Malformed(f"MessagePack {kind} of {size} bytes at {at} ends beyond {len(data)}")
    raw = data[at:end]
    return (raw.decode() if kind == "str" else raw), end
