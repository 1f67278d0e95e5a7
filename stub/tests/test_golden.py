"""The golden frames of ipc/testdata: this side encodes its own, and decodes Go's."""

from __future__ import annotations

import re
from typing import Any

import golden
import numpy as np
import pytest
from golden import LIFE, TESTDATA, Stand
from pb_stub import layout, messages
from pb_stub.batch import Reader, wanted_of
from pb_stub.messages import AutoComplete, Initialize, LogSettings, Settings
from pb_stub.names import Names
from pb_stub.places import Places
from pb_stub.regions import Regions


def read(name: str) -> bytes:
    frame = (TESTDATA / f"{name}.bin").read_bytes()
    size, kind, flags, life, reserved, _ = messages.HEADER.unpack_from(frame)
    assert size == len(frame) and life == LIFE and reserved == 0
    assert kind == messages.kind_of(frame) and flags == messages.flags_of(frame)
    return frame


@pytest.mark.parametrize("name", golden.frames())
def test_frames_are_encoded_as_recorded(name: str) -> None:
    assert golden.frames()[name].hex() == read(name).hex()


SETTINGS = Settings(
    path="/models/m/1/model.py",
    module="1.model",
    search=["/models/m/1", "/models/m"],
    directory="/models/m/1",
    log=LogSettings(info=True, warning=False, error=True, verbose=2),
    spin_us=50,
    default_bytes=1 << 20,
    growth_bytes=2 << 20,
    max_bytes=32 << 30,
)


def test_initialize_is_decoded() -> None:
    assert Initialize.from_frame(read("initialize")) == Initialize(
        args={"model_name": "modèle"},
        version=-1,
        names=["IN", "OUT"],
        inputs=1,
        outputs=1,
        decoupled=False,
        settings=SETTINGS,
        window_responses=64,
        window_bytes=4 << 20,
        async_overlap=2,
    )


def test_auto_complete() -> None:
    assert AutoComplete.from_frame(read("auto_complete")) == AutoComplete(
        config='{"name":"modèle"}', model="modèle", settings=SETTINGS
    )


def test_log_settings() -> None:
    fields = messages.map_of(read("log_settings"))
    assert LogSettings.from_map(fields) == LogSettings(info=False, warning=True, error=False, verbose=1)


def test_result_is_decoded() -> None:
    frame = read("result")
    assert messages.kind_of(frame) == messages.RESULT and messages.HEADER.unpack_from(frame)[5] == 5
    assert messages.map_of(frame) == {"error": "wörong", "code": 4, "ready": True, "value": -0.5}


def test_plain_frames_are_decoded() -> None:
    for name in ("name_up", "name_down"):
        frame = read(name)
        text = messages.body_of(frame).decode()
        assert messages.name(LIFE, messages.HEADER.unpack_from(frame)[5], text) == frame
    assert messages.body_of(read("name_down")).decode() == "ZUSÄTZLICH"
    assert messages.integers(messages.body_of(read("cancel"))) == (1, 2 | 1 << 32)
    assert messages.credit(read("credit")) == (2 << 32 | 1, 32, 5 << 32)
    assert read("finalize") == messages.encode(messages.FINALIZE, LIFE, 0, b"")
    assert messages.region_to_map(read("map")) == (3, 4096, 5 << 32, False)
    assert messages.region_to_map(read("map_writable")) == (4, 4096, 5 << 32, True)
    assert read("unmap") == messages.encode(messages.UNMAP, LIFE, 3, b"")
    lent = messages.Allocation(1, 64 << 20, bytes(range(16)), bytes(range(100, 164)))
    assert messages.allocation(read("allocation")) == (5, lent)
    assert read("freed") == messages.encode(messages.FREED, LIFE, 5, b"")
    frame = read("spilled_down")
    assert messages.flags_of(frame) == messages.SPILLED and messages.kind_of(frame) == messages.EXECUTE
    assert messages.DESCRIPTOR.unpack_from(frame, 24) == (0, 2, 0, 1, 0x5000, 40000, 1 | 2 << 32, 0, 0)


def test_inputs_in_regions_are_decoded() -> None:
    taken: list[tuple[int, int, int, int]] = []

    class Regions:
        def loan(self, number: int, ticket: int, offset: int, size: int) -> None:
            taken.append((number, ticket, offset, size))

    stand: Any = Stand()
    regions: Any = Regions()
    (request,) = Reader(Names(stand, ["IN0"], 1, 0), stand, regions).read(read("execute_region"))
    assert request.inputs()[0].shape() == [70_000]
    assert [(number, offset, size) for number, _, offset, size in taken] == [(5, 100, 70_000)]


def test_places_of_outputs_are_decoded() -> None:
    taken: list[tuple[str, int, int, int]] = []

    class Regions:
        def place(self, _places: Any, name: str, number: int, offset: int, size: int) -> None:
            taken.append((name, number, offset, size))

    stand: Any = Stand()
    regions: Any = Regions()
    names = Names(stand, ["IN0", "OUT0", "OUT1", "OUT2", "OUT3"], 1, 4)
    first, second = Reader(names, stand, regions).read(read("execute_places"))
    assert taken == [("OUT1", 5, 100, 70_000), ("OUT3", 5, 100, 70_000), ("OUT0", 5, 100, 70_000)]
    assert (first.request_id(), first.requested_output_names()) == ("a", {"OUT0", "OUT1"})
    assert second.requested_output_names() == {"OUT0", "OUT1", "OUT2", "OUT3"}


def test_places_on_devices_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "_target", lambda _self, number: number)
    taken: list[tuple[str, int, int, int, int]] = []

    def add(_places: Places, name: str, target: int, number: int, offset: int, size: int) -> None:
        taken.append((name, target, number, offset, size))

    monkeypatch.setattr(Places, "add", add)
    stand: Any = Stand()
    names = Names(stand, ["IN0", "OUT0", "OUT1", "OUT2", "OUT3"], 1, 4)
    (request,) = Reader(names, stand, Regions(stand, None, -1)).read(read("execute_device_places"))
    assert taken == [("OUT1", 1, 1, 100, 70_000), ("OUT3", 2, 2, 7, 4)]
    assert request.request_id() == "a"


def test_execute_is_decoded() -> None:
    stand: Any = Stand()
    names = Names(stand, ["IN0", "IN1", "OUT0", "OUT1"], 2, 2)
    requests = Reader(names, stand).read(read("execute"))
    assert [request._handle for request in requests] == [1 << 32, 1 << 32 | 1]
    assert [wanted_of(request) for request in requests] == [{"OUT1": 3}, {"OUT0": 2, "OUT1": 3}]
    first, second = requests
    assert (first.request_id(), first.correlation_id(), first.flags(), first.timeout()) == ("ürgent", "seq", 0x80010003, 1000000)
    assert first.parameters() == '{"s":"a\\"b","i":-5,"b":true,"d":2.0}'
    assert first.requested_output_names() == {"OUT1"} and first.trace().get_context() is None
    x, y = first.inputs()
    assert (x.name(), x.triton_dtype(), x.shape()) == ("IN0", 11, [1, 2])
    np.testing.assert_array_equal(x.as_numpy(), np.array([[1, 2]], np.float32))
    assert (y.name(), y.triton_dtype(), y.shape(), y._element) == ("IN1", 13, [2], 3)
    assert y.as_numpy().tolist() == [b"ab", b"cd"]
    assert (second.request_id(), second.correlation_id(), second.parameters()) == ("", 42, "{}")
    (z,) = second.inputs()
    origin: Any = z._origin
    assert (z.shape(), origin.size, origin.ticket) == ([5000], 5000, 1 << 32)


def test_infer_response() -> None:
    stand: Any = Stand()
    names = Names(stand, ["IN0", "OUT0", "SUM"], 1, 2)
    reader = Reader(names, stand)
    response, last = reader.response(read("infer_response"))
    assert last and not response.has_error() and response.parameters() == '{"i":-5,"s":"ü"}'
    small, large = response.output_tensors()
    assert (small.name(), small.as_numpy().tolist()) == ("SUM", [[1.0, 2.0]])
    origin: Any = large._origin
    assert (large.name(), large.shape(), origin.size, origin.ticket) == ("OUT0", [5000], 5000, 1 << 32)

    response, last = reader.response(read("infer_response_error"))
    assert last and response.output_tensors() == [] and response.parameters() == ""
    error = response.error()
    assert error is not None and int(error.code()) == 2 and error.message() == "nöt found"

    response, last = reader.response(read("infer_response_end"))
    assert last and not response.has_error() and response.output_tensors() == [] and response.parameters() == ""


def test_numbers_of_the_layout() -> None:
    """The numbers of docs/protocol.md, read from shm/layout.go and ipc/message.go."""
    root = TESTDATA.parent.parent
    go = (root / "shm" / "layout.go").read_text() + (root / "ipc" / "message.go").read_text()
    go += (root / "ipc" / "infer.go").read_text()
    found = dict(re.findall(r"^(?:\t|const )(\w+)(?: +\w+)? += +(.+?) *(?://.*)?$", go, re.MULTILINE))

    def number(name: str) -> int:
        return int(eval(found[name], {}, {key: number(key) for key in re.findall(r"[A-Z]\w+", found[name])}))

    for theirs, ours in {
        "Magic": layout.MAGIC, "Version": layout.VERSION, "MagicOffset": layout.MAGIC_AT,
        "VersionOffset": layout.VERSION_AT, "LifeOffset": layout.LIFE_AT, "TailOffset": layout.TAIL_AT,
        "PostedOffset": layout.POSTED_AT, "SleepOffset": layout.SLEEP_AT, "HeadOffset": layout.HEAD_AT,
        "ReturnOffset": layout.RETURNED_AT, "AheadOffset": layout.WITHDRAWN_AT,
        "ReturnRingOffset": layout.RETURN_RING_AT, "ReturnRingSlots": layout.RETURN_RING_SLOTS,
        "RingOffset": layout.RING_AT, "RingSize": layout.RING_SIZE, "ArenaOffset": layout.ARENA_AT,
        "DownSize": layout.DOWN_SIZE, "PageSize": layout.PAGE, "MaxFrame": layout.MAX_FRAME,
        "MaxInlineBody": layout.MAX_BODY, "MaxSpilledBody": layout.MAX_SPILLED, "MaxInline": layout.MAX_INLINE,
        "HeaderSize": messages.HEADER.size, "DescriptorSize": messages.DESCRIPTOR.size,
        "RequestSize": messages.REQUEST.size, "PlaceSize": messages.PLACE.size,
        "MapSize": messages.MAP_BODY.size, "ResponseSize": messages.RESPONSE_HEAD.size,
        "ExecuteSize": messages.EXECUTE_HEAD.size, "ExecutedSize": messages.EXECUTED_HEAD.size,
        "InFrame": layout.REGION_FRAME, "InRequests": layout.REGION_REQUESTS, "InArena": layout.REGION_ARENA,
        "InClient": layout.REGION_CLIENT,
        "Initialize": messages.INITIALIZE, "Execute": messages.EXECUTE, "Finalize": messages.FINALIZE,
        "Cancel": messages.CANCEL, "Name": messages.NAME, "LogSettings": messages.LOG_SETTINGS,
        "Hello": messages.HELLO, "Initialized": messages.INITIALIZED, "Executed": messages.EXECUTED,
        "Finalized": messages.FINALIZED, "Response": messages.RESPONSE, "Released": messages.RELEASED,
        "Log": messages.LOG, "Result": messages.RESULT, "Call": messages.CALL, "Metric": messages.METRIC, "FlagPresent": messages.RESPONSE_PRESENT, "FlagFinal": messages.RESPONSE_FINAL,
        "FlagError": messages.RESPONSE_ERROR, "FlagReschedule": messages.RESPONSE_RESCHEDULE, "FlagFailure": messages.RESPONSE_FAILURE,
        "CreditSize": messages.CREDIT_BODY.size, "Credit": messages.CREDIT, "AllOutputs": messages.ALL_OUTPUTS,
        "FlagSpilled": messages.SPILLED, "FlagAhead": messages.AHEAD, "StatusExecuted": messages.STATUS_EXECUTED,
        "InferSize": messages.INFER_HEAD.size, "InferResponseSize": messages.INFER_RESPONSE_HEAD.size,
        "InferStream": messages.INFER_STREAM, "InferHolding": messages.INFER_HOLDING,
        "StopCancel": messages.STOP_CANCEL, "StopForget": messages.STOP_FORGET,
        "InferResponse": messages.INFER_RESPONSE, "Infer": messages.INFER, "Demand": messages.DEMAND,
        "StopInfer": messages.STOP_INFER, "InDevice": layout.REGION_DEVICE, "InOwnDevice": layout.REGION_OWN_DEVICE,
        "InDevicePlace": layout.REGION_DEVICE_PLACE,
        "Allocation": messages.ALLOCATION, "Freed": messages.FREED, "Lend": messages.LEND, "Unlend": messages.UNLEND,
        "AllocationSize": messages.ALLOCATION_BODY.size, "SoleReader": messages.SOLE_READER, "ClientsBytes": messages.CLIENTS_BYTES,
        "StatusFailed": messages.STATUS_FAILED, "StatusSkipped": messages.STATUS_SKIPPED,
    }.items():  # fmt: skip
        assert number(theirs) == ours, theirs
    assert layout.COLLECTED_AT == layout.RETURNED_AT and layout.BEGUN_AT == layout.WITHDRAWN_AT
