"""Golden frames of the supervisor with a few changed bytes are accepted or rejected."""

from __future__ import annotations

import os
import random
import struct
from queue import SimpleQueue
from typing import Any, Iterator

import pytest
from golden import LIFE, TESTDATA, Stand
from pb_stub import messages
from pb_stub.batch import Reader
from pb_stub.deviceloans import Opening
from pb_stub.errors import NotUnderstood
from pb_stub.execution import Execution
from pb_stub.loans import Loans
from pb_stub.logs import Logs
from pb_stub.loop import Loop
from pb_stub.messages import AutoComplete, Initialize
from pb_stub.names import Names
from pb_stub.ondevice import OnDevice
from pb_stub.places import Places, Target
from pb_stub.regions import Regions
from pb_stub.senders import Senders

KINDS = (
    "initialize", "auto_complete", "log_settings", "execute", "execute_places", "execute_device_places", "cancel", "name_down", "spilled_down", "finalize",
)  # fmt: skip
MUTATIONS = 4000  # per frame
NAMES = ["IN0", "IN1", "OUT0", "OUT1", "OUT2"]
#: What decoders are most likely to take for something else.
NUMBERS = (0, 1, 2, 7, 8, 64, 65, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
#: Heads of MessagePack's types, and one that it does not know.
CODES = bytes((0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xC4, 0xC6, 0xCB, 0xCF, 0xD3, 0xD4, 0xDB, 0xDD, 0xDF))


class Publisher(Stand):
    """A channel that accepts frames, and counts the stub's complaints."""

    complaints = 0

    def publish(self, frame: bytes) -> None:
        assert messages.kind_of(frame) in (messages.NAME, messages.LOG)
        self.complaints += messages.kind_of(frame) == messages.LOG


@pytest.fixture
def requests_file() -> Iterator[int]:
    fd = os.memfd_create("requests")
    os.truncate(fd, 1 << 17)
    yield fd
    os.close(fd)


def stub(fd: int) -> Loop:
    """A loop that behaves as if initialized."""
    loop = Loop.__new__(Loop)
    stand: Any = Publisher()
    loop._box = SimpleQueue()
    loop._channel = stand
    loop._readiness = None
    loop._told = True
    loop._logs = Logs(stand)
    loop._logs.start()
    loop._loans = Loans(stand, fd)
    loop._regions = Regions(stand, loop._loans.pagemap, -1)
    loop._regions._targets[5] = Target(fd, 0, 1 << 17)  # the destinations of execute_places
    loop._names = Names(stand, NAMES, 2, 3)
    devices = OnDevice(stand, stand)
    for number in (1, 2):  # the destinations of execute_device_places
        allocation = messages.Allocation(0, 1 << 17, bytes(16), bytes(64))
        devices._borrowings._known[number] = Opening(devices._borrowings, allocation)
    loop._execution = Execution.__new__(Execution)
    loop._execution._reader = Reader(loop._names, loop._loans, loop._regions, lambda: devices)
    loop._senders = Senders(stand, loop._loans, loop._regions, stand, loop._logs, "m_0_0", True, 8, 1 << 20)
    return loop


def decode(loop: Loop, frame: bytes) -> None:
    """Handle a frame as the channel and the loop do."""
    stand: Any = loop._channel
    stand.complaints = 0
    if frame[6] & messages.SPILLED:
        frame = loop._unspill(frame)
    if loop._route(frame) is None:
        if stand.complaints:
            raise NotUnderstood
        return
    kind = messages.kind_of(frame)
    if kind == messages.INITIALIZE:
        question = Initialize.from_frame(frame)
        Names(loop._channel, question.names, question.inputs, question.outputs)
        assert all(isinstance(text, str) for item in question.args.items() for text in item)
        assert all(isinstance(text, str) for text in question.settings.search + question.names)
    elif kind == messages.AUTO_COMPLETE:
        complete = AutoComplete.from_frame(frame)
        assert all(isinstance(text, str) for text in (complete.config, complete.model, *complete.settings.search))
    elif kind == messages.EXECUTE:
        for request in loop._execution._reader.read(frame):
            assert isinstance(request._handle, int) and set(request._wanted) <= set(loop._names.sent)
            assert isinstance(request.request_id() + request.parameters(), str)
            assert all(isinstance(tensor.name(), str) for tensor in request.inputs())
            if isinstance(request._wanted, Places):
                for target, number, offset, size in request._wanted._places.values():
                    assert number in ((5,) if isinstance(target, Target) else (1, 2)) and offset + size <= target.size


def mutate(frame: bytes, pick: random.Random) -> bytes:
    """Change the body of a frame, and sometimes its flags and its id, in one to three places."""
    body = bytearray(frame[messages.HEADER.size :])
    for _ in range(pick.randint(1, 3)):
        at = pick.randrange(len(body) + 1)
        how = pick.randrange(7)
        if how == 0:
            del body[at:]
        elif how == 1:
            del body[at : at + pick.randint(1, 16)]
        elif how == 2:
            body[at:at] = pick.getrandbits(64).to_bytes(8, "little")[: pick.randint(1, 8)]
        elif how == 3:
            body[at : at + 1] = bytes((pick.choice(CODES),))
        elif how == 4:
            form = pick.choice(("<H", "<I", "<Q", ">H", ">I"))
            number = pick.choice(NUMBERS) & ((1 << 8 * struct.calcsize(form)) - 1)
            body[at : at + struct.calcsize(form)] = struct.pack(form, number)
        elif how == 5:
            begin = pick.randrange(len(body) + 1)
            body[at:at] = body[begin : begin + pick.randint(1, 64)]
        elif at < len(body):
            body[at] ^= 1 << pick.randrange(8)
    _, kind, flags, _, _, ident = messages.HEADER.unpack_from(frame)
    if not pick.randrange(20):
        flags ^= messages.SPILLED
    if not pick.randrange(20):
        ident = pick.choice(NUMBERS)
    return messages.encode(kind, LIFE, ident, bytes(body), flags)


@pytest.mark.parametrize("name", KINDS)
def test_mutated_frames_end_no_stub(name: str, requests_file: int) -> None:
    frame = (TESTDATA / f"{name}.bin").read_bytes()
    pick = random.Random(name)
    loop = stub(requests_file)
    understood = 0
    for count in range(MUTATIONS):
        if count % 500 == 0:
            loop = stub(requests_file)
        mutated = mutate(frame, pick)
        try:
            decode(loop, mutated)
            understood += 1
        except NotUnderstood:
            pass
        except BaseException as error:
            raise AssertionError(f"{name}, mutation {count}: {mutated.hex()}") from error
    assert understood < MUTATIONS or name == "finalize"


@pytest.mark.parametrize("kind", [7, 64, 72, 0xFFFF])
def test_unknown_kind(kind: int, requests_file: int) -> None:
    with pytest.raises(NotUnderstood):
        decode(stub(requests_file), messages.encode(kind, LIFE, 0, b""))
