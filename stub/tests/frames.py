"""Encoding of frames for a stub, and decoding of its frames.

The encoding here and in supervisor is independent of the stub's, so that errors do not cancel out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np
from pb_stub import _msgpack

KINDS = {
    "PAD": 0, "INITIALIZE": 1, "EXECUTE": 2, "FINALIZE": 3, "CANCEL": 4, "NAME": 5, "LOG_SETTINGS": 6,
    "CREDIT": 10, "READY?": 7, "AUTO_COMPLETE": 12, "INFER_RESPONSE": 8, "RESULT": 9,
    "READY": 72, "COMPLETED": 75, "INFER": 73, "CALL": 74, "DEMAND": 76, "STOP_INFER": 77,
    "HELLO": 65, "INITIALIZED": 66, "EXECUTED": 67, "FINALIZED": 68, "RESPONSE": 69, "RELEASED": 70, "LOG": 71, "METRIC": 78,
    "MAP": 13, "UNMAP": 14, "MAPPED": 79, "ALLOCATION": 15, "FREED": 16, "LEND": 80, "UNLEND": 81,
}  # fmt: skip
NAMES = {number: name for name, number in KINDS.items()}
TYPES: list[Any] = [
    None, np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64,
    np.float16, np.float32, np.float64, np.object_, np.uint16,
]  # fmt: skip
BYTES, BF16 = 13, 14

#: Flags of a response.
PRESENT, FINAL, ERROR = 1, 2, 4


@dataclass
class Frame:
    kind: str
    id: int
    raw: bytes  # the whole frame, with a spilled body inserted

    def fields(self) -> dict[str, Any]:
        value: dict[str, Any] = _msgpack.unpack(self.raw[24:])
        return value


@dataclass
class Request:
    handle: int = 1
    inputs: Sequence[tuple[str, Any]] = ()  # name and array, or (type, shape, bytes)
    outputs: Sequence[str] | None = None
    id: str = ""
    parameters: str = ""
    correlation: Any = 0
    flags: int = 0
    timeout: int = 0
    trace: str = ""
    places: Sequence[tuple[str, int, int, int]] = ()  # of outputs: name, number of the region, offset, bytes
    stays: Sequence[str] | None = None  # outputs that may stay on their device; empty: all
    there: Sequence[tuple[str, int, int, int]] = ()  # places as above, in allocations on devices


@dataclass
class InRegion:
    """An input in a region of a client."""

    number: int
    offset: int
    type: int
    shape: tuple[int, ...]
    size: int


@dataclass
class InDevice:
    """An input on a device, in an announced allocation or in one of the stub's own."""

    number: int
    offset: int
    shape: tuple[int, ...]
    size: int
    type: int = 11  # FP32
    sole: bool = True
    own: bool = False
    client: bool = False  # the bytes are a client's


@dataclass
class Lent:
    """An allocation on a device that the stub has lent."""

    device: int
    size: int
    uuid: bytes
    handle: bytes


@dataclass
class Output:
    name: str
    type: int
    shape: tuple[int, ...]
    region: int
    data: bytes  # of region 4 the offset
    ticket: int
    element: int
    number: int  # of the client's region

    def array(self) -> np.ndarray:
        if self.type == BYTES:
            return np.array(decode_bytes(self.data), np.object_).reshape(self.shape)
        return np.frombuffer(self.data, TYPES[self.type]).reshape(self.shape)


@dataclass
class Response:
    handle: int
    flags: int
    code: int
    parameters: str
    error: str
    outputs: list[Output]

    def __getitem__(self, name: str) -> np.ndarray:
        (output,) = (output for output in self.outputs if output.name == name)
        return output.array()


@dataclass
class Executed:
    batch: int
    status: int
    start: int
    end: int
    text: str
    tickets: list[int]
    responses: list[Response] = field(default_factory=list)


def encode_bytes(elements: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def decode_bytes(data: bytes) -> list[bytes]:
    elements, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        elements.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return elements


def pad8(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def flatten(value: Any) -> tuple[int, tuple[int, ...], bytes]:
    """Encode an array or a triple."""
    if isinstance(value, tuple):
        return value
    array = np.asarray(value)
    if array.dtype == np.object_:
        elements = [e if isinstance(e, bytes) else str(e).encode() for e in array.ravel().tolist()]
        return BYTES, array.shape, encode_bytes(elements)
    return TYPES.index(array.dtype.type), array.shape, array.tobytes()
