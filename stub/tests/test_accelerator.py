"""The compiled part of the stub against its counterpart in Python: both get the same input.

Both must return the same, raise the same, and return the same tickets.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np
import pytest
from c_python_backend_utils import strings
from c_python_backend_utils.error import TritonError
from c_python_backend_utils.request import InferenceRequest
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.sender import sender_of
from c_python_backend_utils.tensor import Tensor
from pb_stub import accelerator, layout, messages
from pb_stub.batch import Answers, Reader
from pb_stub.errors import NotUnderstood
from pb_stub.inferences import Inferences
from pb_stub.loans import Loan
from pb_stub.outgoing import accelerate
from pb_stub.pool import PoolExhausted
from pb_stub.senders import Senders

ROUNDS = 20_000 if os.environ.get("NEREID_TEST_LONG") else 2_000

accelerate()
fast = accelerator.module
needed = pytest.mark.skipif(fast is None, reason=accelerator.reason)


def test_it_is_there_when_it_must_be() -> None:
    """If `make build` had a C compiler, a missing accelerator is an error, not a reason to skip."""
    complete = os.environ.get("NEREID_TEST_COMPLETE") and shutil.which("cc")
    if complete and os.environ.get(accelerator.VARIABLE) != "off":
        assert fast is not None, accelerator.reason


def noise(made: random.Random, size: int) -> bytes:
    return made.getrandbits(8 * size).to_bytes(size, "little") if size else b""


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or its exception."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


# EXECUTE and INFER_RESPONSE.


class Side:
    """A reader with one implementation, and the tickets that its loans return."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.sent: list[bytes] = []
        channel = SimpleNamespace(foreign=False, give_back=self.tickets.append, life=7)
        loans: Any = SimpleNamespace(
            channel=channel, faults=lambda: 0, mapping=lambda _offset, _size: None, read_into=lambda _buffer, _offset: None
        )
        self.loans = loans
        received = ["IN0", "IN1", "OUT0", "OUT1"]
        outputs = {"OUT0": 2, "OUT1": 3}
        names: Any = SimpleNamespace(received=received, outputs=outputs, index=received.index)
        self.reader = Reader(names, self.loans)


def text_bytes(made: random.Random) -> bytes:
    return made.choice((b"", b"", b"x", "größe".encode(), b'{"a": 1}', b"\xff\xfe", b"y" * 300))


def descriptor(made: random.Random, ticket: int) -> bytes:
    rank = made.choice((0, 1, 1, 2, 5, 64, 65) if made.random() < 0.05 else (0, 1, 1, 2, 5))
    name = made.randrange(5 if made.random() < 0.05 else 4)
    region = made.choice((0, 0, 0, 1, 1, 2, 3, 4, 9) if made.random() < 0.1 else (0, 0, 1))
    size = made.choice((0, 4, 100)) if made.random() < 0.9 else 1 << 62  # which no allocator grants
    shape = [made.choice((-1, 0, 1, 7, 2**62)) for _ in range(rank)]
    head = messages.DESCRIPTOR.pack(name, made.choice((1, 11, 13, 14)), rank, region, made.choice((0, 64, 128)), size, ticket, made.choice((0, 5)), 0)
    return head + struct.pack(f"<{rank}q", *shape)


def execute(made: random.Random) -> bytes:
    """An EXECUTE frame, mostly valid."""
    count = made.choice((0, 1, 1, 1, 2, 5))
    body = messages.EXECUTE_HEAD.pack(count, made.random() < 0.02)
    for n in range(count):
        inputs = made.choice((0, 1, 1, 2))
        outputs = made.choice((messages.ALL_OUTPUTS, 0, 1, 2, 3))
        texts = [text_bytes(made) for _ in range(4)] if made.random() < 0.5 else [b""] * 4
        kind = made.choice((0, 0, 1, 2))
        body += messages.REQUEST.pack(
            made.choice((0, 1, 2**64 - 1)), made.choice((0, 9, 2**64 - 1)), made.choice((0, 5)), made.choice((0, 3)), inputs, outputs,
            *map(len, texts), kind, made.random() < 0.01, 0,
        )  # fmt: skip
        for k in range(inputs):
            body += descriptor(made, 100 * n + k)
        if outputs != messages.ALL_OUTPUTS:
            body += struct.pack(f"<{outputs}H", *(made.choice((2, 3)) for _ in range(outputs))) + bytes(-2 * outputs % 8)
        text = b"".join(texts)
        body += text + bytes(-len(text) % 8)
    body += bytes(made.choice((0, 0, 128)))
    if made.random() < 0.3:
        changed = bytearray(body)
        for _ in range(made.choice((1, 2, 8))):
            changed[made.randrange(len(changed))] = made.choice((0, 1, 255, made.randrange(256)))
        body = bytes(changed[: made.choice((len(changed), len(changed), made.randrange(len(changed) + 1)))])
    return messages.encode(messages.EXECUTE, 7, 5, body)


def slots_of(o: Any) -> dict[str, Any]:
    """Return the slots of an object, with those of objects in them."""
    found = {}
    for name in type(o).__slots__:
        if name not in ("__weakref__", "_loans", "_region"):
            value = getattr(o, name, "unset")
            if isinstance(value, list):
                value = list(map(slots_of, value))
            elif isinstance(value, Loan):
                value = slots_of(value)
            found[name] = value
    return found


def decode(side: Side, frame: bytes, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(accelerator, "module", fast if compiled else None)
    try:
        requests = side.reader.read(frame)
    except NotUnderstood as error:
        return "error", str(error)
    return [slots_of(request) for request in requests]


@needed
def test_both_decode_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(3)
    taken = 0
    for _ in range(ROUNDS):
        frame = execute(made)
        sides = Side(), Side()
        results = [decode(side, frame, bool(compiled), monkeypatch) for compiled, side in enumerate(sides)]
        assert results[0] == results[1], frame
        assert sorted(sides[0].tickets) == sorted(sides[1].tickets), frame
        names = sides[1].reader._names
        again = Side()
        taken += outcome(lambda: fast.read(again.reader, frame, names.received, names.outputs, {}, again.loans)) is not None  # noqa: B023
    assert taken > ROUNDS // 3  # not left to Python


@needed
def test_both_decode_the_same_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(4)
    for _ in range(ROUNDS):
        outputs = made.choice((0, 1, 2))
        flags = made.choice((1, 3, 2, 7))
        parameters, text = text_bytes(made), text_bytes(made)
        body = messages.INFER_RESPONSE_HEAD.pack(0, 0)
        body += messages.RESPONSE_HEAD.pack(1, flags, outputs, 1, len(parameters), len(text), 1)
        for n in range(outputs):
            body += descriptor(made, n)
        body += parameters + text
        if made.random() < 0.3:
            body = body[: made.randrange(len(body))]
        frame = messages.encode(messages.INFER_RESPONSE, 7, 5, body)
        sides = Side(), Side()
        results: list[Any] = []
        for compiled, side in enumerate(sides):
            monkeypatch.setattr(accelerator, "module", fast if compiled else None)
            found = outcome(lambda: side.reader.response(frame))  # noqa: B023
            if isinstance(found[0], InferenceResponse):
                fields = slots_of(found[0])
                error = fields.pop("_error")
                found = fields, found[1], error and (error._message, error._code)
            results.append(found)
        assert results[0] == results[1], frame
        del results, found
        assert sorted(sides[0].tickets) == sorted(sides[1].tickets), frame


# EXECUTED and RESPONSE.


class Sending:
    """What Answers need, without memory for what does not fit into a frame, or with."""

    def __init__(self, memory: bool) -> None:
        self.life = 7
        self.memory = memory
        self.lent = 0
        self.withdrawn = 0

    def place(self, index: int, tensor: Tensor) -> Any:
        sent = tensor._sent
        if isinstance(sent, bytes) and len(sent) <= layout.MAX_INLINE:
            return index, tensor._code, tensor._shape, 0, sent, len(sent), 0, tensor._element, 0
        if not self.memory:
            raise PoolExhausted("no memory")
        self.lent += 1
        return index, tensor._code, tensor._shape, layout.REGION_ARENA, 4096, 5000, 77, tensor._element, 0


class Both(Answers):
    """Answers whose tensors beyond the frame are placed by Sending."""

    def __init__(self, sending: Sending) -> None:
        any_sending: Any = sending
        super().__init__(any_sending, any_sending, any_sending)
        self.sending = sending

    def place(self, index: int, tensor: Tensor) -> Any:
        data = tensor._data
        if tensor._sent is None and isinstance(data, (bytes, np.ndarray)):
            raw = data if isinstance(data, bytes) else data.tobytes()
            if len(raw) <= layout.MAX_INLINE or isinstance(data, bytes):
                tensor._sent = raw
        if data is None:
            sent: Any = tensor._bytes()
        else:
            sent = tensor._sent if tensor._sent is not None else np.asarray(data).tobytes()
        if isinstance(sent, bytes) and len(sent) <= layout.MAX_INLINE:
            size = self._inline_size + ((len(sent) + 15) & ~15)
            if size <= layout.MAX_INLINE_TOTAL:
                self._inline_size = size
                return index, tensor._code, tensor._shape, 0, sent, len(sent), 0, tensor._element, 0
            if not self.sending.memory:
                raise PoolExhausted("no memory")
            return index, tensor._code, tensor._shape, layout.REGION_ARENA, 4096, len(sent), 77, tensor._element, 0
        return self.sending.place(index, tensor)

    def retract(self, placed: list[Any]) -> None:
        self.sending.withdrawn += sum(item[3] == layout.REGION_ARENA for item in placed)

    def let_go(self) -> list[int]:
        return [11, 2**64 - 1]


def received(name: str, data: bytes, dtype: int, shape: tuple[int, ...]) -> Tensor:
    """Make an input in a frame, as the reader does."""
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._code, tensor._shape = name, dtype, shape
    tensor._array = tensor._data = tensor._sent = None
    tensor._element = 0
    tensor._origin, tensor._offset, tensor._size = b"before" + data + b"behind", 6, len(data)
    return tensor


def output(made: random.Random) -> Tensor:
    kind = made.randrange(9)
    if kind == 6:  # passed through
        size = made.choice((0, 4, 4096, 5000))
        return received("OUT0", b"i" * size, 2, (size,))
    if kind == 7:
        changed = Tensor("OUT1", np.arange(12, dtype=np.int64).reshape(3, 4))
        assert isinstance(changed._data, np.ndarray)
        changed._data = changed._data.T  # as a consumer of DLPack may do
        return changed
    if kind == 8:
        exported = received("OUT0", bytes(8), 11, (2,))
        exported.__dlpack__()
        return exported
    name = made.choice(("OUT0", "OUT1"))
    if kind == 0:
        return Tensor(name, np.array([b"a", "ü", 3][: made.randrange(4)], np.object_))
    if kind == 1:
        return Tensor(name, np.zeros(made.choice((0, 1, 1024, 1025, 5000)), np.float32))
    if kind == 2:
        return Tensor(name, np.arange(12, dtype=np.int64).reshape(3, 4).T)
    if kind == 3:
        return Tensor(name, np.array(1.5))
    if kind == 4:
        return Tensor(made.choice((name, "UNKNOWN")), np.ones((2, 1, 3), np.uint8))
    return Tensor(name, np.array([b"x" * 2000] * made.choice((1, 2, 3)), np.object_))


@needed
@pytest.mark.parametrize("final", [True, False])
def test_both_encode_the_same_responses(monkeypatch: pytest.MonkeyPatch, final: bool) -> None:
    made = random.Random(5)
    taken = 0
    for _ in range(ROUNDS):
        seed = made.random()
        memory = made.random() < 0.7
        frames: list[Any] = []
        for compiled in (False, True):
            monkeypatch.setattr(accelerator, "module", fast if compiled else None)
            again = random.Random(seed)
            response = InferenceResponse([output(again) for _ in range(again.choice((0, 1, 2, 9)))], parameters=again.choice((None, {}, {"a": "ü"})))
            if again.random() < 0.1:
                response = InferenceResponse(error=TritonError("broken"))
            sending = Sending(memory)
            answers = Both(sending)
            wanted = again.choice(({"OUT0": 2, "OUT1": 3}, {"OUT0": 0}, {"OUT0": 2, "OUT1": 65535}))

            def answer(answers: Both = answers, response: Any = response, wanted: Any = wanted) -> bytes:
                answers.gather_one(2**63, response, wanted, final)
                return answers.pack_response(2**63)

            frames.append((outcome(answer), answers._gathered is None or answers.size(), sending.lent - sending.withdrawn if memory else 0))
            taken += compiled and answers._gathered is not None
        assert frames[0][0] == frames[1][0], seed
    assert taken > ROUNDS // 4


@needed
def test_both_encode_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(6)
    for _ in range(ROUNDS):
        seed = made.random()
        frames: list[bytes] = []
        for compiled in (False, True):
            monkeypatch.setattr(accelerator, "module", fast if compiled else None)
            again = random.Random(seed)
            count = again.choice((1, 2, 32))
            responses = [InferenceResponse([Tensor("OUT0", np.full(again.choice((1, 300, 1024)), 3, np.float32))]) for _ in range(count)]
            requests = []
            for n in range(count):
                request = InferenceRequest.__new__(InferenceRequest)
                request._handle = 5 << 32 | n
                request._wanted = {"OUT0": 2}
                requests.append(request)
            answers = Both(Sending(True))
            if not answers.gather(requests, responses):
                for request, response in zip(requests, responses):
                    answers.response(request._handle, response, {"OUT0": 2})
            assert (answers._gathered is not None) == compiled
            frames.append(answers.pack(5, 1, 2**63))
        assert frames[0] == frames[1], seed


class Interrupting(Both):
    """A pool in which a signal handler raises an exception."""

    fault: BaseException = KeyboardInterrupt()

    def place(self, index: int, tensor: Tensor) -> Any:  # noqa: ARG002
        raise self.fault


@needed
@pytest.mark.parametrize("count", [1, 2])
def test_exceptions_of_signal_handlers_get_through(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(accelerator, "module", fast)
    responses = [InferenceResponse([Tensor("OUT0", np.zeros(5000, np.float32))]) for _ in range(count)]
    requests = []
    for _ in range(count):
        request = InferenceRequest.__new__(InferenceRequest)
        request._handle, request._wanted = 1, {"OUT0": 2}
        requests.append(request)
    answers = Interrupting(Sending(True))
    with pytest.raises(KeyboardInterrupt):
        answers.gather(requests, responses)
    answers.fault = PoolExhausted("no memory")
    if count == 1:  # the whole batch fails
        with pytest.raises(PoolExhausted):
            answers.gather(requests, responses)
    else:  # Python finds the response that fails
        assert answers.gather(requests, responses) is False
    with pytest.raises(PoolExhausted):
        answers.gather_one(1, responses[0], {"OUT0": 2}, True)


@needed
def test_both_claim_the_same_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(InferenceResponse):
        __slots__ = ()

    made = random.Random(11)
    senders: Any = Senders.__new__(Senders)
    senders.decoupled, senders._returned = False, sender_of(None)
    other = sender_of(None)
    for _ in range(ROUNDS // 4):
        seed = made.random()
        results = []
        for module in (None, fast):
            monkeypatch.setattr(accelerator, "module", module)
            again = random.Random(seed)
            count = again.randrange(4)
            requests = []
            for _ in range(count):
                request = InferenceRequest.__new__(InferenceRequest)
                request._sender = again.choice((None, None, None, other))
                requests.append(request)
            responses = [again.choice((InferenceResponse([]), InferenceResponse([]), Own([]), None, 3)) for _ in range(count)]
            usual = senders.claim(requests, again.choice((responses, responses, responses[1:], tuple(responses), None)))
            results.append((usual, [request._sender for request in requests]))
        assert results[0] == results[1], seed
    before = sys.getrefcount(other) + sys.getrefcount(senders._returned)
    request._sender = other
    for _ in range(100):
        assert fast.claim([request], [InferenceResponse([])], senders._returned) is False
        request._sender = None
        assert fast.claim([request], [InferenceResponse([])], senders._returned) is True
        request._sender = other
    assert sys.getrefcount(other) + sys.getrefcount(senders._returned) - before < 5
    assert fast.claim([3], [3], other) is None


# INFER.


@needed
def test_both_encode_the_same_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(10)
    taken = 0
    pack = Inferences.pack
    for _ in range(ROUNDS):
        seed = made.random()
        frames: list[Any] = []
        for compiled in (False, True):
            used: list[Any] = []
            if compiled:

                def infer(*args: Any, used: list[Any] = used) -> Any:
                    used.append(fast.infer(*args))
                    return used[-1]

                monkeypatch.setattr(accelerator, "module", SimpleNamespace(infer=infer))
            else:
                monkeypatch.setattr(accelerator, "module", None)
            again = random.Random(seed)
            inputs = [output(again) for _ in range(again.choice((0, 1, 1, 3)))]
            wanted = [again.choice(("OUT0", "OUT1", "NEW")) for _ in range(again.choice((0, 1, 2)))]
            request = InferenceRequest(
                again.choice(("", "id", "größe")), again.choice((0, 5, "text", 2**64 - 1)), inputs, wanted, again.choice(("m", "modell-ü")),
                again.choice((-1, 3)), again.choice((0, 3)), again.choice((0, 2**40)), parameters=again.choice((None, {"a": 1})),
            )  # fmt: skip
            known = {"OUT0": 0, "OUT1": 1, "UNKNOWN": 2}
            inferences: Any = Inferences.__new__(Inferences)
            inferences._channel = SimpleNamespace(life=7)
            inferences._names = SimpleNamespace(sent=known, index=lambda name, known=known: known.setdefault(name, len(known)))
            inferences._model, inferences._version, inferences._executing, inferences._decoupled = b"me", 1, 0, False
            inferences.batch, inferences.awaited, inferences._hosts, inferences._asked = again.choice((0, 9)), 0, {}, {}
            sending: Any = Both(Sending(True))
            frames.append(outcome(lambda: pack(inferences, 12, sending, request, again.random() < 0.5)))  # noqa: B023
            taken += any(frame is not None for frame in used)
        assert frames[0] == frames[1], seed
    assert taken > ROUNDS // 4


# The API.


@needed
def test_subclasses_go_to_python() -> None:
    class Own(Tensor):
        __slots__ = ("_array",)
        loaded = 0

        def _load(self) -> np.ndarray:
            self.loaded = 1  # type: ignore[misc]
            return np.zeros(1)

    class Answer(InferenceResponse):
        __slots__ = ("extra",)

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name != "extra":
                super().__setattr__("extra", name)

    own = Own("OUT0", np.ones(3, np.float32))
    assert own.as_numpy().tolist() == [1, 1, 1]
    answer: Any = Answer([])
    assert answer.extra == "_parameters"


@needed
def test_the_api_describes_itself() -> None:
    import inspect

    import triton_python_backend_utils as utils

    assert str(inspect.signature(utils.get_input_tensor_by_name)) == "(inference_request, name)"
    assert utils.get_input_tensor_by_name.__module__ == "triton_python_backend_utils"
    assert "output_tensors" in str(inspect.signature(InferenceResponse.__init__))


@needed
def test_lists_are_whole_when_a_collection_shows_them() -> None:
    """A collection may run Python code at any allocation, which finds the new lists."""
    side = Side()
    frame = messages.encode(messages.EXECUTE, 7, 5, messages.EXECUTE_HEAD.pack(50, 0) + 50 * (
        messages.REQUEST.pack(1, 0, 0, 0, 2, messages.ALL_OUTPUTS, 0, 0, 0, 0, 0, 0, 0)
        + 2 * (messages.DESCRIPTOR.pack(0, 11, 1, 0, 0, 4, 0, 0, 0) + struct.pack("<q", 1))
    ))  # fmt: skip

    def look(*_: Any) -> None:
        for o in gc.get_objects():
            if type(o) is list:
                for item in o:
                    type(item)

    names = side.reader._names
    gc.callbacks.append(look)
    before = gc.get_threshold()
    gc.set_threshold(20, 1000, 1000)
    try:
        found = fast.read(side.reader, frame, names.received, names.outputs, {}, side.loans)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(look)
    assert len(found) == 50


# Inputs in shared memory.


@needed
def test_faults_are_those_of_the_kernel() -> None:
    def counted() -> int:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_minflt + usage.ru_majflt

    before = counted()
    memory = mmap.mmap(-1, 256 * mmap.PAGESIZE)
    memory.madvise(15)  # MADV_NOHUGEPAGE
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    assert before + 256 <= fast.faults() <= counted()


@needed
def test_addresses_are_those_of_numpy() -> None:
    for array in (np.zeros(5), np.zeros((2, 3), np.uint8)[1:], np.array(3.0), np.zeros(100, ">i4")):
        assert fast.address(array) == array.__array_interface__["data"][0]
    with pytest.raises(ValueError, match="contiguous"):
        fast.address(np.zeros((2, 3)).T)
    with pytest.raises(TypeError):
        fast.address(3)


# Strings.


@needed
def test_both_encode_the_same_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(7)
    values: tuple[Any, ...] = (b"", b"abc", b"\0", "text", "ü", 3, 2.5, None, np.str_("n"), np.bytes_(b"b"), b"x" * 70000)
    for _ in range(ROUNDS // 4):
        elements = [made.choice(values) for _ in range(made.choice((0, 1, 2, 50)))]
        if made.random() < 0.3:
            elements = [b"abc"] * len(elements)
        array = np.empty(len(elements), np.object_)
        array[:] = elements
        results = []
        for module in (None, fast):
            monkeypatch.setattr(strings, "fast", module)
            results.append(strings.encode(array))
        assert results[0] == results[1], elements
    for array in (np.array([b"ab", b"c"], "S"), np.array([["a", b"b"], [1, None]], np.object_).T, np.array("x", np.object_)):
        results = []
        for module in (None, fast):
            monkeypatch.setattr(strings, "fast", module)
            results.append(strings.encode(array))
        assert results[0] == results[1]


@needed
def test_both_reject_the_same_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __str__(self) -> str:
            raise KeyError("no text")

    for element, error in (("\ud800", UnicodeEncodeError), (Broken(), KeyError)):
        array = np.array(["fine", element], np.object_)
        for module in (None, fast):
            monkeypatch.setattr(strings, "fast", module)
            with pytest.raises(error):
                strings.encode(array)


@needed
def test_both_decode_the_same_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(8)
    for _ in range(ROUNDS):
        parts = [noise(made, made.choice((0, 1, 3, 3, 3, 40))) for _ in range(made.choice((0, 1, 2, 30)))]
        data = b"".join(struct.pack("<I", len(part)) + part for part in parts)
        if made.random() < 0.4:
            data = data[: made.randrange(len(data) + 1)]
        if data and made.random() < 0.2:
            changed = bytearray(data)
            changed[made.randrange(len(changed))] = made.randrange(256)
            data = bytes(changed)
        results = []
        for module in (None, fast):
            monkeypatch.setattr(strings, "fast", module)
            found = outcome(lambda: strings.decode(data))  # noqa: B023
            results.append(found if isinstance(found, tuple) else (found.dtype, found.tolist()))
        assert results[0] == results[1], data


@needed
def test_fill_checks_its_array() -> None:
    data = struct.pack("<I", 1) + b"a"
    for array in (np.empty(2, np.object_), np.empty(0, np.object_)):
        with pytest.raises(ValueError, match="another length"):
            fast.fill_strings(data, array)
    for other in (np.empty(1, np.int64), bytearray(8), b"12345678"):
        with pytest.raises((TypeError, BufferError, ValueError)):
            fast.fill_strings(data, other)


@needed
def test_nothing_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """References stay the same however often each function is called."""
    monkeypatch.setattr(accelerator, "module", fast)
    made = random.Random(9)
    frames = [execute(made) for _ in range(50)]
    array = np.array([b"a", "ü", 3], np.object_)
    plain = np.ones(3, np.float32)

    def work() -> None:
        side = Side()
        for frame in frames:
            requests = outcome(lambda: side.reader.read(frame))  # noqa: B023
            if isinstance(requests, list):
                for request in requests:
                    for tensor in request.inputs():
                        if isinstance(tensor._origin, bytes) and tensor._code == 11:
                            try:
                                tensor.as_numpy()
                            except (TypeError, ValueError):
                                pass
        strings.decode(strings.encode(array)[0])
        answers = Both(Sending(True))
        answers.gather_one(1, InferenceResponse([Tensor("OUT0", plain), Tensor("OUT0", array)]), {"OUT0": 1}, True)
        answers.pack_response(1)

    def references() -> int:
        return sum(sys.getrefcount(o) for o in (None, True, False, 0, "", Tensor, InferenceRequest, InferenceResponse, Loan, plain, array, np.ndarray, *plain.shape))

    for _ in range(5):
        work()
    gc.collect()
    before = references()
    blocks = sys.getallocatedblocks()
    for _ in range(800):
        work()
    gc.collect()
    # One leaked object or reference in each round would be 800; caches grow by up to 300.
    assert references() - before < 50
    assert sys.getallocatedblocks() - blocks < 600


# The choice.


def python(code: str, *path: Path, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path or (Path(accelerator.__file__).parent.parent,))), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


SHOW = "from pb_stub import accelerator as a; print(a.module is not None, a.failed, a.reason)"


def test_a_variable_turns_it_off() -> None:
    assert python(SHOW, **{accelerator.VARIABLE: "off"}) == "False False NEREID_ACCELERATOR is off"


def test_a_library_that_cannot_be_loaded_is_reported(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("pb_stub", "c_python_backend_utils", "triton_python_backend_utils.py"):
        (copy / name).symlink_to(root / name)
    (copy / "pb_stub").unlink()
    (copy / "pb_stub").mkdir()
    for file in (root / "pb_stub").iterdir():
        if not file.name.endswith(".so"):
            (copy / "pb_stub" / file.name).symlink_to(file)
    assert python(SHOW, copy, **{accelerator.VARIABLE: "on"}) == "False False this program was built without it"
    name = "_accelerator_t.so" if "t" in sys.abiflags else "_accelerator.abi3.so"
    (copy / "pb_stub" / name).write_bytes(b"\x7fELF of another machine")
    shown = python(SHOW, copy, **{accelerator.VARIABLE: "on"})
    assert shown.startswith("False True it cannot be loaded: ")
