"""Response senders dropped before the end, and rescheduled requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Start
from frames import ERROR, FINAL, PRESENT, Request
from sending import (
    CLOSED,
    DROPPED,
    RESCHEDULE,
    UNANSWERED,
    errors,
    executing,
    flags_of,
    run,
)

from models import BATCH_ERROR


class TestDropped:
    @pytest.mark.parametrize(
        "body",
        [
            "pass",
            "requests[0].get_response_sender()",
            "s = requests[0].get_response_sender()\ndel s",
            "requests[0].get_response_sender().send(answer())",
            "requests[0].is_cancelled()",
            "requests[0].set_release_flags(1)",
            "requests.clear()",
        ],
    )
    def test_decoupled(self, start: Start, body: str) -> None:
        stub, executed = run(start, body, True)
        assert executed.status == 0 and not executed.responses
        assert stub.responses[-1].flags == PRESENT | FINAL | ERROR and stub.responses[-1].error == DROPPED
        assert errors(stub) == [DROPPED]

    @pytest.mark.parametrize("value", ["None", "[None] * len(requests)"])
    @pytest.mark.parametrize("body", ["pass", "requests[0].get_response_sender()", "requests[0].is_cancelled()"])
    def test_not_decoupled(self, start: Start, body: str, value: str) -> None:
        stub, executed = run(start, f"{body}\nreturn {value}", False)
        assert executed.status == 1 and not executed.responses and executed.text == UNANSWERED  # so that it is counted
        (response,) = stub.responses
        assert response.flags == PRESENT | FINAL | ERROR and (response.error, response.code) == (UNANSWERED, 1)
        assert errors(stub) == [UNANSWERED]

    def test_each_of_a_batch_is_logged(self, start: Start) -> None:
        stub, executed = run(start, "requests[1].get_response_sender().send(answer(), 1)", False, 3)
        assert executed.status == 0 and errors(stub) == [UNANSWERED] * 2

    def test_logged_while_a_frame_is_sent(self, start: Start) -> None:
        """A destructor may interrupt anywhere, even between two steps of a send."""
        stub = start(
            executing(
                """
                from pb_stub.channel import Channel
                if requests[0].request_id() == "keep":
                    kept = requests[:]
                    def write(channel, frame, original=Channel._write):
                        kept.clear()
                        original(channel, frame)
                    kept[0].get_response_sender()._outlet._senders.channel._send = None  # the accelerator has no steps
                    requests.clear()
                    Channel._write = write
                """
            ),
            decoupled=True,
        )
        stub.execute(Request(1, id="keep"))
        stub.execute(Request(2))
        assert [(r.handle, r.error) for r in stub.responses] == [(1, DROPPED), (2, DROPPED)]
        assert errors(stub) == [DROPPED] * 2

    def test_final_was_forgotten(self, start: Start) -> None:
        """The client of a model with a single response has received it."""
        stub, _ = run(start, "requests[0].get_response_sender().send(answer())", False)
        assert flags_of(stub.responses) == [PRESENT, FINAL]

    def test_long_afterwards(self, start: Start) -> None:
        """A holder of the request or its sender can answer; the end of both ends the request."""
        stub = start(
            executing(
                """
                what = requests[0].request_id()
                if what == "keep":
                    self.kept = requests[:]
                    self.senders = [requests[1].get_response_sender()]
                    del self.kept[1]
                elif what == "drop":
                    self.kept.pop()
                    self.senders.pop()
                requests[0].get_response_sender() if what == "keep" else requests[0].get_response_sender().send(answer(), 1)
                """
            ),
            decoupled=True,
        )
        stub.execute(Request(1, id="keep"), Request(2))
        assert not stub.responses
        stub.execute(Request(3))
        assert [r.handle for r in stub.responses] == [3]
        stub.execute(Request(4, id="drop"))
        assert sorted(r.handle for r in stub.responses[1:]) == [1, 2, 4]
        assert {r.error for r in stub.responses if r.handle in (1, 2)} == {DROPPED}

    def test_in_a_cycle(self, start: Start) -> None:
        stub = start(
            executing(
                """
                if requests[0].request_id() == "collect":
                    gc.collect()
                    requests[0].get_response_sender().send(answer(), 1)
                    return
                cycle = [requests[0].get_response_sender(), requests[0]]
                cycle.append(cycle)
                """
            ),
            decoupled=True,
        )
        stub.execute(Request(1))
        stub.execute(Request(2, id="collect"))
        assert {(r.handle, r.error) for r in stub.responses} == {(1, DROPPED), (2, "")}

    @pytest.mark.parametrize("decoupled, text", [(True, DROPPED), (False, UNANSWERED)])
    def test_in_a_cycle_of_an_idle_stub(self, start: Start, tmp_path: Path, decoupled: bool, text: str) -> None:
        """Nothing in the stub triggers Python's garbage collection."""
        stub = start(
            executing(
                f"""
                import os, threading, time
                (loop,) = (o for o in gc.get_objects() if type(o).__name__ == "Loop")
                loop._senders.forgotten.patience = 0.05
                gc.set_threshold(0)
                gc.disable()  # or a circle that is found before the batch is over would end with it
                over = {str(tmp_path)!r} + "/" + requests[0].request_id()
                def enable():
                    while not os.path.exists(over):
                        time.sleep(0.001)
                    gc.enable()
                threading.Thread(target=enable, daemon=True).start()
                cycle = [requests[0].get_response_sender(), requests[0]]
                cycle.append(cycle)
                """
            ),
            decoupled=decoupled,
        )
        for handle in (1, 2):  # its thread has slept in between
            assert stub.execute(Request(handle, id=f"over{handle}")).status == 0
            (tmp_path / f"over{handle}").touch()
            response = stub.next_response()
            assert (response.handle, response.flags, response.error) == (handle, PRESENT | FINAL | ERROR, text)
        assert stub.finalize()["error"] == "" and stub.wait_exit() == 0 and not stub.stderr()

    def test_in_a_forked_child(self, start: Start) -> None:
        """The copy in a child is not a sender."""
        stub, _ = run(
            start,
            """
            import os
            s = requests[0].get_response_sender()
            reader, writer = os.pipe()
            if not os.fork():
                text = refusal(s.send, answer())
                del s, requests
                gc.collect()
                os.write(writer, text.encode())
                os._exit(0)
            os.wait()
            s.send(texts(os.read(reader, 1000)), 1)
            """,
            True,
        )
        (response,) = stub.responses
        assert response["OUT"].tolist() == [b"a process that the model forked cannot talk to the server"]


class TestRescheduling:
    def test_not_decoupled(self, start: Start) -> None:
        body = (
            "requests[1].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\nreturn [answer(), None]"
        )
        stub, executed = run(start, body, False, 2)
        assert [(r.handle, r.flags) for r in executed.responses] == [(1, PRESENT | FINAL), (2, RESCHEDULE)]
        assert not stub.responses

    def test_decoupled(self, start: Start) -> None:
        """Responses may be sent before. This round's sender is closed; the next round has another."""
        stub = start(
            executing(
                """
                s = requests[0].get_response_sender()
                if hasattr(self, "last"):
                    s.send(texts(refusal(self.last.send, answer()), str(s is self.last)), 1)
                    return
                self.last = s
                s.send(answer())
                requests[0].set_release_flags(flags=2)
                """
            ),
            decoupled=True,
        )
        executed = stub.execute(Request(1))
        assert flags_of(executed.responses) == [RESCHEDULE] and flags_of(stub.responses) == [PRESENT]
        assert not stub.execute(Request(1 << 32)).responses
        assert stub.responses[1]["OUT"].tolist() == [CLOSED.encode(), b"False"]

    @pytest.mark.parametrize("value", ["answer()", "failing('no')"])
    def test_with_a_response(self, start: Start, value: str) -> None:
        body = f"requests[0].set_release_flags(2)\nreturn [{value}, answer()]"
        _, executed = run(start, body, False, 2)
        want = (
            "Expected a None object in the execute function return list for reschduled request, found type "
            "'<class 'c_python_backend_utils.InferenceResponse'>'."
        )
        assert executed.status == 0
        assert [(r.handle, r.error) for r in executed.responses] == [(1, BATCH_ERROR + want), (2, "")]

    def test_exceptions_reset(self, start: Start) -> None:
        _, executed = run(start, "requests[0].set_release_flags(2)\nraise ValueError", False)
        assert executed.status == 1 and not executed.responses

    def test_wrong_flags_are_refused(self, start: Start) -> None:
        _, executed = run(
            start,
            """
            flags = requests[0].set_release_flags
            seen = [refusal(flags, *args) for args in ((), (None,), (-1,), (1, 2), (9,), (1,))]
            return [texts(*seen)]
            """,
            False,
        )
        assert executed.responses[0]["OUT"].tolist() == [b"TypeError"] * 4 + [b""] * 2

    def test_too_late(self, start: Start) -> None:
        stub = start(
            executing(
                """
                if requests[0].request_id() == "late":
                    self.kept.set_release_flags(2)
                    self.answered.set_release_flags(2)
                    return [answer()]
                if requests[0].request_id() == "answer":
                    self.answered = requests[0]
                    return [answer()]
                self.kept = requests[0]
                return [None]
                """
            )
        )
        stub.execute(Request(3, id="answer"))
        assert not stub.execute(Request(1)).responses
        assert flags_of(stub.execute(Request(2, id="late")).responses) == [PRESENT | FINAL]
