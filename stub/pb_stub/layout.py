"""Layout of the shared files, as in docs/protocol.md and shm/layout.go."""

from __future__ import annotations

MAGIC = 0x3144524E  # "NRD1"
VERSION = 2

# Control words. Offsets in the first page of *down*, which the supervisor writes, and of *up*,
# which the stub writes.
MAGIC_AT = 0x000  # u32
VERSION_AT = 0x004  # u32
LIFE_AT = 0x008  # u32
TAIL_AT = 0x040  # u64, bytes published in this file's ring
POSTED_AT = 0x048  # u64, CLOCK_MONOTONIC ns of the latest publication
SLEEP_AT = 0x080  # u32, odd while this side's reader sleeps
HEAD_AT = 0x0C0  # u64, bytes consumed of the other file's ring
RETURNED_AT = 0x100  # u64, in down: tickets published in the return ring
COLLECTED_AT = 0x100  # u64, in up: tickets taken from it
WITHDRAWN_AT = 0x140  # u64, in down: the batch handed ahead that the supervisor wants back
BEGUN_AT = 0x140  # u64, in up: the latest batch handed ahead that was begun
GRANTED_AT = 0x180  # u64, in down: bytes of the arena that may be reserved, 0 for no limit
WANTED_AT = 0x180  # u64, in up: bytes of the arena that this stub requests
ANSWERED_AT = 0x188  # u64, in down: the last ASKED that the supervisor has answered
ASKED_AT = 0x188  # u64, in up: how often this stub has asked

RETURN_RING_AT = 0x1000  # in down, u64 each
RETURN_RING_SLOTS = 4096

RING_AT = 0x10000
RING_SIZE = 0x20000
DOWN_SIZE = RING_AT + RING_SIZE
ARENA_AT = RING_AT + RING_SIZE  # in up, to the end of the file

PAGE = 4096

MAX_FRAME = 65536
MAX_BODY = 32768  # longer bodies are SPILLED
MAX_SPILLED = 64 << 20  # maximum length of a SPILLED body
MAX_INLINE = 4096  # bytes of a tensor inside a frame
#: Total bytes of tensors inside one frame; the rest goes into blocks, so that tensors never spill a
#: frame.
MAX_INLINE_TOTAL = 28672

MAX_NAMES = 65535
MAX_NAME_BYTES = 1 << 20

REGION_FRAME = 0
REGION_REQUESTS = 1
REGION_ARENA = 2
REGION_CLIENT = 3
REGION_DEVICE = 4
REGION_OWN_DEVICE = 5
REGION_DEVICE_PLACE = 6
