"""Frames: kinds, fixed parts, and bodies that are MessagePack maps.

The counterpart of ipc/message.go. batch.py decodes EXECUTE and encodes EXECUTED, where every
microsecond counts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _msgpack, layout
from .errors import NotUnderstood

PAD = 0
INITIALIZE = 1
EXECUTE = 2
FINALIZE = 3
CANCEL = 4
NAME = 5
LOG_SETTINGS = 6
READY_QUESTION = 7
INFER_RESPONSE = 8
RESULT = 9
CREDIT = 10
AUTO_COMPLETE = 12
MAP = 13
UNMAP = 14
ALLOCATION = 15
FREED = 16

HELLO = 65
INITIALIZED = 66
EXECUTED = 67
FINALIZED = 68
RESPONSE = 69
RELEASED = 70
LOG = 71
READY_ANSWER = 72
INFER = 73
CALL = 74
COMPLETED = 75
DEMAND = 76
STOP_INFER = 77
METRIC = 78
MAPPED = 79
LEND = 80
UNLEND = 81

SPILLED = 1
AHEAD = 2

#: size, kind, flags, life, reserved, id
HEADER = struct.Struct("<IHHIIQ")
#: name, data type, rank, region, offset, bytes, ticket, element, mapping
DESCRIPTOR = struct.Struct("<HBBIQQQII")
#: Dimensions by rank.
DIMENSIONS = tuple(struct.Struct(f"<{rank}q") for rank in range(65))

#: requests, flags
EXECUTE_HEAD = struct.Struct("<II")
EXECUTE_COPIES = 1
#: handle, correlation id, timeout, flags, inputs, outputs, bytes of: id, parameters, correlation,
#: trace; kind of correlation id, places of outputs, priority
REQUEST = struct.Struct("<QQQIHHIIIIIIQ")
#: name, kind, region or allocation, offset, bytes: the destination of an output, or where it may
#: stay
PLACE = struct.Struct("<HHIQQ")
PLACE_REGION = 0
PLACE_DEVICE = 1
PLACE_ALLOCATION = 2
CORRELATION_NUMBER = 0
CORRELATION_TEXT = 1
ALL_OUTPUTS = 0xFFFF

#: responses, status, start, end, tickets, bytes of the text
EXECUTED_HEAD = struct.Struct("<IIQQII")
STATUS_EXECUTED = 0
STATUS_FAILED = 1
STATUS_SKIPPED = 2
#: batch, version, flags, demand, bytes of the model's name, preferred memory
INFER_HEAD = struct.Struct("<QqIIII")
INFER_STREAM = 1
INFER_HOLDING = 2
INFER_GUESS = 4
#: reserved
INFER_RESPONSE_HEAD = struct.Struct("<II")
HINT_DEVICES = 1
HINT_HOST = 2
STOP_CANCEL = 1
STOP_FORGET = 2

#: handle, flags, outputs, code, bytes of: parameters, error; in INFER_RESPONSE version of the model
RESPONSE_HEAD = struct.Struct("<QIHHIIQ")
RESPONSE_PRESENT = 1
RESPONSE_FINAL = 2
RESPONSE_ERROR = 4
RESPONSE_RESCHEDULE = 8
RESPONSE_FAILURE = 16

#: tickets, reserved
RESPONSE_BEGIN = struct.Struct("<II")
#: responses, reserved, bytes
CREDIT_BODY = struct.Struct("<IIQ")

#: offset, bytes, 1 if the region is mapped to be written
MAP_BODY = struct.Struct("<QQQ")
#: device, reserved, bytes, UUID of the device, handle
ALLOCATION_BODY = struct.Struct("<IIQ16s64s")
#: Element of a device tensor's descriptor: no other process reads or writes the bytes.
SOLE_READER = 1
#: The same: the bytes are a client's, which may change them after the last response.
CLIENTS_BYTES = 2
MAP_DONE = 0
MAP_REFUSED = 1
MAP_ENDED = 2

#: operation, reserved, value
METRIC_BODY = struct.Struct("<IId")

UINT8 = 2  # the data type of a spilled body


def kind_of(frame: bytes) -> int:
    return frame[4] | frame[5] << 8


def flags_of(frame: bytes) -> int:
    return frame[6] | frame[7] << 8


def encode(kind: int, life: int, ident: int, body: bytes, flags: int = 0) -> bytes:
    """Encode a whole frame."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, life, 0, ident) + body


def body_of(frame: bytes) -> bytes:
    return frame[HEADER.size :]


def map_of(frame: bytes) -> dict[str, Any]:
    """Decode a body that is one MessagePack map."""
    try:
        value = _msgpack.unpack(body_of(frame))
    except _msgpack.Malformed as error:
        raise NotUnderstood(f"kind {kind_of(frame)}: {error}") from error
    if not isinstance(value, dict):
        raise NotUnderstood(f"kind {kind_of(frame)}: body is {type(value).__name__}, want a map")
    return value


def integers(body: bytes) -> tuple[int, ...]:
    """Decode a body of u64 numbers."""
    if len(body) % 8:
        raise NotUnderstood(f"a list of numbers has {len(body)} bytes, want a multiple of 8")
    return struct.unpack(f"<{len(body) // 8}Q", body)


def place_of_body(frame: bytes) -> tuple[int, int, int, int]:
    """Return the location of a SPILLED frame's body: region, offset, bytes, ticket."""
    if len(frame) != HEADER.size + DESCRIPTOR.size:
        raise NotUnderstood(f"a spilled frame has {len(frame)} bytes, want {HEADER.size + DESCRIPTOR.size}")
    _, _, _, region, offset, count, ticket, _, _ = DESCRIPTOR.unpack_from(frame, HEADER.size)
    return region, offset, count, ticket


def spilled_body(region: int, offset: int, size: int, ticket: int) -> bytes:
    """Encode the descriptor that a SPILLED frame has instead of its body."""
    return DESCRIPTOR.pack(0, UINT8, 0, region, offset, size, ticket, 0, 0)


@dataclass(frozen=True)
class LogSettings:
    """The levels that the supervisor logs."""

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: int = 0

    @staticmethod
    def from_map(fields: dict[str, Any]) -> LogSettings:
        return LogSettings(
            info=_field(fields, "info", bool),
            warning=_field(fields, "warning", bool),
            error=_field(fields, "error", bool),
            verbose=_field(fields, "verbose", int),
        )


@dataclass(frozen=True)
class Settings:
    """The settings that a stub needs before it imports the model."""

    path: str
    module: str
    search: list[str]
    directory: str
    log: LogSettings
    spin_us: int
    default_bytes: int
    growth_bytes: int
    max_bytes: int
    dev: bool = False  # the model is in development: breakpoints use a terminal

    @staticmethod
    def from_map(fields: dict[str, Any]) -> Settings:
        return Settings(
            path=_field(fields, "path", str),
            module=_field(fields, "module", str),
            search=_texts(fields, "search"),
            directory=_field(fields, "directory", str),
            log=LogSettings.from_map(_field(fields, "log", dict)),
            spin_us=_field(fields, "spin_us", int),
            default_bytes=_field(fields, "default_bytes", int),
            growth_bytes=_field(fields, "growth_bytes", int),
            max_bytes=_field(fields, "max_bytes", int),
            dev="dev" in fields and _field(fields, "dev", bool),
        )


@dataclass(frozen=True)
class AutoComplete:
    """The config for the model to complete."""

    config: str
    model: str
    settings: Settings

    @staticmethod
    def from_frame(frame: bytes) -> AutoComplete:
        fields = map_of(frame)
        return AutoComplete(_field(fields, "config", str), _field(fields, "model", str), Settings.from_map(fields))


@dataclass(frozen=True)
class Initialize:
    """The data that a stub needs before it initializes the model."""

    args: dict[str, str]
    version: int  # of the model
    names: list[str]
    inputs: int
    outputs: int
    decoupled: bool
    settings: Settings
    window_responses: int
    window_bytes: int
    async_overlap: int
    strict_outputs: bool = False  # undeclared outputs are errors
    no_device_copy: bool = False  # as_numpy of a tensor on a device is an error

    @staticmethod
    def from_frame(frame: bytes) -> Initialize:
        fields = map_of(frame)
        args = _field(fields, "args", dict)
        if not all(isinstance(text, str) for item in args.items() for text in item):
            raise NotUnderstood('field "args" has keys or values that are not str')
        try:
            version = int(args.get("model_version", "-1"))
        except ValueError as error:
            raise NotUnderstood(f"model_version: {error}") from error
        names = _texts(fields, "names")
        inputs, outputs = _field(fields, "inputs", int), _field(fields, "outputs", int)
        if inputs < 0 or outputs < 0 or inputs + outputs != len(names):
            raise NotUnderstood(f"there are {len(names)} names for {inputs} inputs and {outputs} outputs")
        return Initialize(
            args=args,
            version=version,
            names=names,
            inputs=inputs,
            outputs=outputs,
            decoupled=_field(fields, "decoupled", bool),
            settings=Settings.from_map(fields),
            window_responses=_field(fields, "window_responses", int),
            window_bytes=_field(fields, "window_bytes", int),
            async_overlap=_field(fields, "async_overlap", int),
            strict_outputs="strict_outputs" in fields and _field(fields, "strict_outputs", bool),
            no_device_copy="no_device_copy" in fields and _field(fields, "no_device_copy", bool),
        )


def _field(fields: dict[str, Any], key: str, kind: type) -> Any:
    """Return one field. Go encodes empty lists and maps as nil."""
    value = fields.get(key)
    if value is None and kind in (list, dict) and key in fields:
        return kind()
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise NotUnderstood(f'field "{key}" is {type(value).__name__}, want {kind.__name__}')
    return value


def _texts(fields: dict[str, Any], key: str) -> list[str]:
    """Return a field that is a list of str."""
    texts: list[str] = _field(fields, key, list)
    if not all(isinstance(text, str) for text in texts):
        raise NotUnderstood(f'field "{key}" has items that are not str')
    return texts


def hello(life: int, pid: int, python: str, numpy: str, executable: str, prefix: str) -> bytes:
    fields = {"python": python, "numpy": numpy, "executable": executable, "prefix": prefix}
    return encode(HELLO, life, pid, _msgpack.pack(fields))


#: Maximum bytes of a MessagePack body, except HELLO.
MAX_MAP = 1 << 20
#: Maximum characters of a text in a MessagePack body, which has at most 1 MiB.
_LONGEST_TEXT = 200_000


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


def initialized(life: int, error: str, is_ready: bool) -> bytes:
    return encode(INITIALIZED, life, 0, _msgpack.pack({"error": _cut(error), "is_ready": is_ready}))


def completed(life: int, error: str, config: str) -> bytes:
    return encode(COMPLETED, life, 0, _msgpack.pack({"error": _cut(error), "config": config}))


def ready(life: int, probe: int, answer: bool, error: str) -> bytes:
    return encode(READY_ANSWER, life, probe, _msgpack.pack({"ready": answer, "error": _cut(error)}))


def finalized(life: int, error: str) -> bytes:
    return encode(FINALIZED, life, 0, _msgpack.pack({"error": _cut(error)}))


def log(
    life: int, level: int, file: str, line: int, message: str, own: bool = False, batch: int = 0, once: str = ""
) -> bytes:
    """Encode a LOG frame: the model's or the stub's, with an optional batch and `once`."""
    fields: dict[str, Any] = {"level": level, "file": _cut(file), "line": line, "message": _cut(message)}
    if own:
        fields.update(own=True, batch=batch)
    if once:
        fields["once"] = _cut(once)
    return encode(LOG, life, 0, _msgpack.pack(fields))


def call(life: int, number: int, operation: str, **fields: Any) -> bytes:
    """Encode a CALL frame; number 0 requests no RESULT."""
    return encode(CALL, life, number, _msgpack.pack({"operation": operation, **fields}))


def metric(life: int, number: int, operation: int, value: float) -> bytes:
    return HEADER.pack(40, METRIC, 0, life, 0, number) + METRIC_BODY.pack(operation, 0, value)


def released(life: int, tickets: list[int]) -> bytes:
    return encode(RELEASED, life, 0, struct.pack(f"<{len(tickets)}Q", *tickets))


def name(life: int, index: int, text: str) -> bytes:
    return encode(NAME, life, index, text.encode())


def final(life: int, handle: int) -> bytes:
    """Encode the RESPONSE frame that has only the final flag."""
    return encode(
        RESPONSE, life, handle, RESPONSE_BEGIN.pack(0, 0) + RESPONSE_HEAD.pack(handle, RESPONSE_FINAL, 0, 0, 0, 0, 0)
    )


def credit(frame: bytes) -> tuple[int, int, int]:
    """Decode a CREDIT frame: handle, responses, bytes."""
    if len(frame) != HEADER.size + CREDIT_BODY.size:
        raise NotUnderstood(f"CREDIT has {len(frame)} bytes, want {HEADER.size + CREDIT_BODY.size}")
    responses, _, size = CREDIT_BODY.unpack_from(frame, HEADER.size)
    return HEADER.unpack_from(frame)[5], responses, size


def region_to_map(frame: bytes) -> tuple[int, int, int, bool]:
    """Decode a MAP frame: number of the region, offset in its file, bytes, writable or not."""
    if len(frame) != HEADER.size + MAP_BODY.size:
        raise NotUnderstood(f"MAP has {len(frame)} bytes, want {HEADER.size + MAP_BODY.size}")
    start, size, writable = MAP_BODY.unpack_from(frame, HEADER.size)
    if writable > 1:
        raise NotUnderstood(f"MAP wants {writable}, want 0 or 1")
    return HEADER.unpack_from(frame)[5], start, size, bool(writable)


class Allocation(NamedTuple):
    """An allocation on a device that a process shares with others."""

    device: int  # number in the allocating process
    size: int  # bytes
    uuid: bytes  # of the device, 16 bytes
    handle: bytes  # CUDA's, 64 bytes


def allocation(frame: bytes) -> tuple[int, Allocation]:
    """Decode an ALLOCATION frame: its number, and the allocation."""
    if len(frame) != HEADER.size + ALLOCATION_BODY.size:
        raise NotUnderstood(f"ALLOCATION has {len(frame)} bytes, want {HEADER.size + ALLOCATION_BODY.size}")
    device, _, size, uuid, handle = ALLOCATION_BODY.unpack_from(frame, HEADER.size)
    return HEADER.unpack_from(frame)[5], Allocation(device, size, uuid, handle)


def lend(life: int, number: int, lent: Allocation) -> bytes:
    """Encode the LEND frame of an allocation."""
    return encode(LEND, life, number, ALLOCATION_BODY.pack(lent.device, 0, lent.size, lent.uuid, lent.handle))


def word(kind: int, life: int, ident: int, number: int) -> bytes:
    """Encode a DEMAND, STOP_INFER or MAPPED frame."""
    return encode(kind, life, ident, struct.pack("<II", number, 0))


def executed_failed(life: int, batch: int, start: int, end: int, tickets: list[int], text: bytes) -> bytes:
    """Encode the EXECUTED frame that fails a whole batch."""
    padding = bytes(-len(text) % 8)
    head = EXECUTED_HEAD.pack(0, STATUS_FAILED, start, end, len(tickets), len(text))
    return encode(EXECUTED, life, batch, head + struct.pack(f"<{len(tickets)}Q", *tickets) + text + padding)


def executed_skipped(life: int, batch: int) -> bytes:
    """Encode the EXECUTED frame for a batch that was withdrawn in time."""
    return encode(EXECUTED, life, batch, EXECUTED_HEAD.pack(0, STATUS_SKIPPED, 0, 0, 0, 0))


assert HEADER.size + EXECUTED_HEAD.size == 56 and REQUEST.size == 64 and DESCRIPTOR.size == 40
assert HEADER.size + INFER_HEAD.size + REQUEST.size == 120
assert HEADER.size + layout.MAX_BODY <= layout.MAX_FRAME
