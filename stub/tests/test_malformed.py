"""Complete frames with invalid bodies: only their requests fail."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import frames
import numpy as np
import pytest
import supervisor
from conftest import Start
from frames import Request
from pb_stub import _msgpack
from ring import store
from supervisor import Supervisor

IDENTITY = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""

#: Executes the id of its request, and answers with the result.
CALLER = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            scope = {"pb_utils": pb_utils, "np": np, "said": ""}
            try:
                exec(requests[0].request_id(), scope)
            except Exception as error:
                scope["said"] = f"{type(error).__name__}: {error}"
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([scope["said"]], np.object_))])]
"""

CALL = """
request = pb_utils.InferenceRequest(model_name="other", inputs=[], requested_output_names=["OUT"])
response = request.exec()
said = response.error().message() if response.has_error() else "fine"
"""

STREAM = """
request = pb_utils.InferenceRequest(model_name="other", inputs=[], requested_output_names=["OUT"])
said = "; ".join(r.error().message() if r.has_error() else "fine" for r in request.exec(decoupled=True))
"""

DECOUPLED = """
    import numpy as np
    import threading
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                threading.Thread(target=self.stream, args=(request.get_response_sender(),)).start()

        def stream(self, sender):
            for _ in range(6):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.uint8))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def lives(stub: Supervisor) -> None:
    """The stub continues to serve, and holds no loan."""
    data = np.arange(9000, dtype=np.uint8)
    answer = stub.execute(Request(99, [("IN", data)], id="said = 'here'"))
    assert answer.status == 0, answer.text
    stub.execute(Request(98, [("IN", np.zeros(1, np.uint8))]))
    assert stub.loans == {}


def complaint(stub: Supervisor, text: str) -> None:
    assert any(text in log["message"] for log in stub.logs), stub.logs


def strings(ident: bytes = b"", parameters: bytes = b"", text: bytes = b"", trace: bytes = b"", inputs: bytes = b"") -> bytes:
    """Encode EXECUTE of one request with these bytes as its strings."""
    head = struct.pack(
        "<QQQIHHIIIIIIQ", 1 << 32, 0, 0, 0, bool(inputs), 0xFFFF, len(ident), len(parameters), len(text), len(trace), 1, 0, 0
    )
    return struct.pack("<II", 1, 0) + head + inputs + frames.pad8(ident + parameters + text + trace)


BATCHES = [
    b"",
    b"\1",
    struct.pack("<II", 7, 0),
    struct.pack("<II", 2**32 - 1, 0),
    strings(ident=b"\xff"),
    strings(ident=b"\xed\xb0\x80"),
    strings(parameters=b"\xff"),
    strings(text=b"\xff"),
    strings(trace=b"\xff"),
    strings(ident=b"x" * 40_000 + b"\xff"),
    strings(inputs=struct.pack("<HBBIQQQII", 7, 2, 0, 0, 0, 0, 0, 0, 0)),
    strings(inputs=struct.pack("<HBBIQQQII", 0, 2, 65, 0, 0, 0, 0, 0, 0)),
    strings(ident=b"x")[:40],
    strings(inputs=bytes(40))[:80],
]


def test_malformed_execute_fails_its_batch(start: Start) -> None:
    stub = start(IDENTITY)
    prefix = "Failed to process the request(s) for model 'm_0_0', message: the server's message is not understood: EXECUTE of "
    for body in BATCHES:
        stub.batch += 1
        stub.send("EXECUTE", stub.batch, body)
        answer = stub.finish_batch()
        assert answer.status == 1 and answer.text.startswith(prefix), body
        complaint(stub, "the server's message is not understood")
        stub.logs.clear()
        lives(stub)


def test_tickets_before_the_fault_come_back(start: Start) -> None:
    """The second request of a batch is invalid: the loans of the first end with the answer."""
    stub = start(IDENTITY)
    body = stub.execute_body([Request(1, [("IN", np.zeros(9000, np.uint8))]), Request(2, id="ab")])
    assert len(stub.loans) == 1
    stub.batch += 1
    stub.send("EXECUTE", stub.batch, body.replace(b"ab", b"\xff\xff"))
    assert stub.finish_batch().status == 1
    lives(stub)


@pytest.mark.parametrize(("name", "rank"), [(7, 0), (0xFFFF, 1), (0, 65), (0, 255)])
def test_tickets_of_unknown_descriptors_come_back(start: Start, name: int, rank: int) -> None:
    """A descriptor has an unknown name or rank.

    Its batch fails or is skipped; its ticket returns.
    """
    stub = start(IDENTITY)
    offset, ticket = stub.lend(b"x" * 9000)
    described = struct.pack("<HBBIQQQII", name, 2, rank, 1, offset, 9000, ticket, 0, 0) + bytes(8 * min(rank, 64))
    stub.batch += 1
    stub.send("EXECUTE", stub.batch, strings(inputs=described))
    answer = stub.finish_batch()
    assert answer.status == 1 and "the server's message is not understood" in answer.text
    lives(stub)


PLACES = [
    struct.pack("<HBBIQQQII", 0, 2, 0, 0, 0, 8, 0, 0, 0),
    struct.pack("<HBBIQQQII", 0, 2, 0, 2, 0, 8, 0, 0, 0),
    struct.pack("<HBBIQQQII", 0, 2, 0, 1, 1 << 40, 8, 0, 0, 0),
    struct.pack("<HBBIQQQII", 0, 2, 0, 1, 0, 1 << 62, 0, 0, 0),
]


def test_spilled_nowhere_fails_its_batch(start: Start) -> None:
    """The location of the body is invalid: the batch fails, and its ticket returns."""
    stub = start(IDENTITY)
    for place in PLACES:
        _, ticket = stub.lend(b"x" * 8)
        stub.batch += 1
        stub.send("EXECUTE", stub.batch, place[:24] + struct.pack("<Q", ticket) + place[32:], flags=1)
        assert stub.finish_batch().status == 1
        complaint(stub, "the spilled body of a frame of kind 2 cannot be read")
        stub.logs.clear()
        lives(stub)


def test_spilled_without_descriptor(start: Start) -> None:
    stub = start(IDENTITY)
    stub.batch += 1
    stub.send("EXECUTE", stub.batch, b"x" * 8, flags=1)
    assert stub.finish_batch().status == 1
    lives(stub)


ODDITIES = [
    ("CANCEL", 0, b"\1\2\3"),
    ("NAME", 0, b"again"),
    ("NAME", 9, b"too far"),
    ("NAME", 2, b"\xff"),
    ("LOG_SETTINGS", 0, b""),
    ("LOG_SETTINGS", 0, b"\x05"),
    ("LOG_SETTINGS", 0, _msgpack.pack({"info": 1})),
    ("CREDIT", 7, b"\1"),
    ("INITIALIZE", 0, b""),
    ("AUTO_COMPLETE", 0, b"\xc1"),
    ("HELLO", 0, b""),
    ("RESPONSE", 5, b"\xff" * 100),
    ("READY?", 1, b""),
    ("RESULT", 77, b"\xff"),
    ("INFER_RESPONSE", 77, b""),
    ("INFER_RESPONSE", 77, b"\xff" * 100),
]


def test_irrelevant_frames_are_ignored(start: Start) -> None:
    stub = start(IDENTITY)
    for kind, ident, body in ODDITIES:
        stub.send(kind, ident, body)
        if kind == "INFER_RESPONSE":  # no more are requested
            frame = stub.receive()
            assert (frame.kind, frame.id, frame.raw[24:28]) == ("STOP_INFER", 77, b"\2\0\0\0")
        lives(stub)
        if kind not in ("RESULT", "INFER_RESPONSE"):  # nobody waits for these
            complaint(stub, "came after INITIALIZE" if kind in ("INITIALIZE", "AUTO_COMPLETE") else "is not understood")
        stub.logs.clear()


def test_names_after_one_that_is_not_understood(start: Start) -> None:
    """Indices do not shift: names after an invalid one are unknown, earlier ones are known."""
    stub = start(IDENTITY)
    stub.send("NAME", 2, b"\xff")
    stub.send("NAME", 3, b"LATE")
    stub.batch += 1
    stub.send("EXECUTE", stub.batch, strings(inputs=struct.pack("<HBBIQQQII", 3, 2, 0, 0, 0, 0, 0, 0, 0)))
    assert stub.finish_batch().status == 1
    lives(stub)


def test_credit_ends_its_stream(start: Start) -> None:
    """Invalid credit ends the request: the waiting model learns this, the client gets an error."""
    stub = start(DECOUPLED, decoupled=True, window_responses=2)
    stub.start_batch(Request(1))
    seen: list[Any] = []
    while len(seen) < 3:
        frame = stub.receive()
        if frame.kind == "RESPONSE":
            seen.append(stub.response(frame))
            if len(seen) == 2:
                stub.send("CREDIT", 1, b"nonsense")
        else:
            assert frame.kind == "EXECUTED"
            stub.executed(frame)
    assert seen[2].flags == 7 and "a frame of kind 10 is not understood" in seen[2].error
    stub.start_batch(Request(2))
    last = stub.receive()
    while last.kind == "EXECUTED":
        last = stub.receive()
    assert stub.response(last).flags == 1


@pytest.mark.parametrize("text", [CALL, STREAM])
def test_answers_of_other_models(start: Start, text: str) -> None:
    stub = start(CALLER)
    head = struct.pack("<IIQIHHIIQ", 0, 0, 0, 3, 0, 0, 1, 0, 0)
    for body in (b"", b"\0" * 8, head + b"\xff", head[:-1], b"\xff" * 64):
        stub.start_batch(Request(1, id=text))
        frame = stub.receive()
        assert frame.kind == "INFER"
        stub.send("INFER_RESPONSE", frame.id, body)
        frame = stub.receive()
        assert frame.kind == "STOP_INFER"
        frame = stub.receive()
        assert frame.kind == "EXECUTED", frame
        (said,) = stub.executed(frame).responses[0]["OUT"]
        assert said.decode().startswith("the server's answer is not understood: INFER_RESPONSE of "), said
        lives(stub)


def test_results_of_calls(start: Start) -> None:
    stub = start(CALLER)
    for body in (b"", b"\xff", b"\x05", b"\x80", _msgpack.pack({"error": 7}), b"\x81\xa5error\xa1\xff"):
        stub.start_batch(Request(1, id="pb_utils.unload_model('other')"))
        frame = stub.receive()
        assert frame.kind == "CALL"
        stub.send("RESULT", frame.id, body)
        frame = stub.receive()
        (said,) = stub.executed(frame).responses[0]["OUT"]
        assert "the server's answer is not understood" in said.decode()
        lives(stub)


@pytest.mark.parametrize("body", [b"", b"\x05", _msgpack.pack({"args": {"model_version": "one"}}), b"\x81\xa4args\xa1\xff"])
@pytest.mark.parametrize("kind", ["INITIALIZE", "AUTO_COMPLETE"])
def test_malformed_first_frame_fails_the_start(root: Path, kind: str, body: bytes) -> None:
    """The start fails like that of a model, with a message."""
    with Supervisor(root) as stub:
        stub.hello()
        stub.send(kind, 0, body)
        frame = stub.receive()
        assert frame.kind == {"INITIALIZE": "INITIALIZED", "AUTO_COMPLETE": "COMPLETED"}[kind]
        assert frame.fields()["error"].startswith(f"{kind} is not understood: ")
        assert stub.wait_exit() == 1


def test_before_initialize(root: Path, tmp_path: Path) -> None:
    """Early frames are answered, or skipped, and the model starts."""
    import textwrap

    with Supervisor(root) as stub:
        stub.hello()
        for kind in ("CANCEL", "NAME", "CREDIT", "READY?", "INFER_RESPONSE", "RESULT", "HELLO", "LOG_SETTINGS"):
            stub.send(kind, 1, b"\xff" * 11)
        stub.send("EXECUTE", 1, struct.pack("<II", 0, 0))
        frame = stub.receive()
        assert frame.kind == "EXECUTED"
        answer = stub.executed(frame)
        assert answer.status == 1 and answer.text == "a frame of kind 2 came before INITIALIZE"
        assert stub.initialize(supervisor.model(tmp_path, textwrap.dedent(IDENTITY)))["error"] == ""
        lives(stub)


class TestTheRing:
    """The end of a frame is unknown: the stub exits."""

    @pytest.mark.parametrize("size", [7, 1 << 20])
    def test_impossible_size_ends_the_stub(self, start: Start, size: int) -> None:
        stub = start(IDENTITY)
        at = 0x10000 + stub.ring.at % 0x20000
        stub.down[at : at + 8] = struct.pack("<IHH", size, 2, 0)
        store(stub.down, 0x040, "<Q", stub.ring.at + 24)
        stub.ring_bell()
        assert stub.wait_exit() == 76
        assert "a frame has " in stub.stderr()

    def test_a_header_that_is_cut(self, start: Start) -> None:
        stub = start(IDENTITY)
        at = 0x10000 + stub.ring.at % 0x20000
        stub.down[at : at + 8] = struct.pack("<IHH", 16, 2, 0)
        store(stub.down, 0x040, "<Q", stub.ring.at + 16)
        stub.ring_bell()
        assert stub.wait_exit() == 76
        assert "a frame has 16 bytes, want at least 24" in stub.stderr()


def test_no_memory_for_a_frame(start: Start) -> None:
    """An error in the stub's own frames has a separate exit code: it is not the model's fault."""
    stub = start("""
        import pb_stub.messages

        def kind_of(frame):
            raise MemoryError

        class TritonPythonModel:
            def execute(self, requests):
                pb_stub.messages.kind_of = kind_of
    """)
    stub.start_batch(Request(1))
    stub.send("LOG_SETTINGS")
    assert stub.wait_exit() == 71


def test_responses_that_do_not_fit(start: Start) -> None:
    """A model that modifies the stub's objects fails only its batch."""
    stub = start("""
        import numpy as np
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                tensor = pb_utils.Tensor("OUT", np.zeros(1, np.uint8))
                exec(requests[0].request_id(), {"tensor": tensor})
                return [pb_utils.InferenceResponse([tensor])]
    """)
    for text in ("tensor._code = 700", "tensor._shape = (2**70,)", "tensor._shape = (1,) * 300"):
        answer = stub.execute(Request(1, id=text))
        assert answer.status == 1 and "a response does not fit into a message" in answer.text
        lives(stub)
