"""Response senders, decoupled and not: every row of the rules, windows, what is dropped, threads, coroutines."""

from __future__ import annotations

import struct
import textwrap
from typing import Any

import numpy as np
import pytest
from conftest import Start
from supervisor import Request, Response, Supervisor
from test_execute import BATCH_ERROR, ERROR, FINAL, PRESENT

RESCHEDULE = 8
UNABLE = "Unable to send response. "
CLOSED = UNABLE + "Response sender has been closed."
TWO = UNABLE + "Non-decoupled model cannot send more than one response."
EARLY_FINAL = UNABLE + "Non-decoupled model cannot send complete final before sending a response."
UNSUPPORTED = UNABLE + "Unsupported flag provided."
NOTHING = "Inference Response object must be provided when the response flags is set to zero."
SELF_MADE = UNABLE + "Response sender has no reference to the decoupled state of the model."
DROPPED = BATCH_ERROR + "the response sender was dropped before it had sent the final flag."
UNANSWERED = BATCH_ERROR + "execute returned no response for this request, and none was sent."

HEAD = """
import asyncio, gc, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def answer(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values or (7,), np.int32))])

def failing(text, code=pb_utils.TritonError.INTERNAL):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))

def refusal(call, *args, **named):
    try:
        call(*args, **named)
    except pb_utils.TritonModelException as error:
        return str(error)
    except TypeError as error:
        return "TypeError"
    return ""

def texts(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values, np.object_))])

"""


def executing(body: str) -> str:
    """A model whose execute has this body."""
    return (
        HEAD
        + "class TritonPythonModel:\n    def execute(self, requests):\n"
        + textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    )


def flags_of(responses: list[Response]) -> list[int]:
    return [response.flags for response in responses]


def errors(stub: Supervisor) -> list[str]:
    """What was logged as an error."""
    return [line["message"] for line in stub.logs if line["level"] == 2]


def run(start: Start, body: str, decoupled: bool, requests: int = 1) -> tuple[Supervisor, Any]:
    stub = start(executing(body), decoupled=decoupled)
    return stub, stub.execute(*(Request(number) for number in range(1, requests + 1)))


class TestArguments:
    """§3.1: in this order, before any state is touched."""

    @pytest.mark.parametrize("decoupled", [False, True])
    def test_checks(self, start: Start, decoupled: bool) -> None:
        stub, _ = run(
            start,
            """
            s = requests[0].get_response_sender()
            seen = [
                refusal(s.send, 5), refusal(s.send, answer(), -1), refusal(s.send, answer(), 2**32),
                refusal(s.send, answer(), 1.0), refusal(s.send, answer(), None), refusal(s.send, answer(), 1, 2),
                refusal(s.send, answer(), wrong=1), refusal(s.send, [answer()]), refusal(s.send, response=5),
                refusal(s.send, answer(), 2), refusal(s.send, None, 3), refusal(s.send, flags=4),
                refusal(s.send), refusal(s.send, None), refusal(s.send, None, 0), refusal(s.send, flags=False),
            ]
            s.send(response=texts(*seen), flags=np.int64(1))
            """,
            decoupled,
        )
        (response,) = stub.responses
        seen = [text.decode() for text in response["OUT"].tolist()]
        assert seen == ["TypeError"] * 9 + [UNSUPPORTED] * 3 + [NOTHING] * 4
        assert response.flags == PRESENT | FINAL

    def test_same_sender_each_time(self, start: Start) -> None:
        stub, _ = run(
            start,
            """
            r = requests[0]
            s = r.get_response_sender()
            same = s is r.get_response_sender()
            found = []
            pool = [threading.Thread(target=lambda: found.append(r.get_response_sender())) for _ in range(8)]
            [t.start() for t in pool]; [t.join() for t in pool]
            s.send(answer(same, all(f is s for f in found), hasattr(s, "close")), 1)
            """,
            True,
        )
        assert stub.responses[0]["OUT"].tolist() == [1, 1, 0]

    def test_no_constructor(self, start: Start) -> None:
        stub, _ = run(
            start,
            """
            from c_python_backend_utils import InferenceResponseSender
            try:
                InferenceResponseSender()
            except TypeError as error:
                requests[0].get_response_sender().send(texts(str(error)), 1)
            """,
            True,
        )
        assert stub.responses[0]["OUT"].tolist() == [
            b"c_python_backend_utils.InferenceResponseSender: No constructor defined!"
        ]

    @pytest.mark.parametrize("decoupled", [False, True])
    def test_self_made_request(self, start: Start, decoupled: bool) -> None:
        stub, _ = run(
            start,
            """
            mine = pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name="other")
            s = mine.get_response_sender()
            mine.set_release_flags(2)
            seen = [
                s is mine.get_response_sender(), mine.is_cancelled(), s.is_cancelled(),
                refusal(s.send, answer()), refusal(s.send, flags=1), refusal(s.send, answer(), 2),
            ]
            del s, mine
            requests[0].get_response_sender().send(texts(*map(str, seen)), 1)
            """,
            decoupled,
        )
        seen = [text.decode() for text in stub.responses[0]["OUT"].tolist()]
        assert seen == ["True", "False", "False", SELF_MADE, SELF_MADE, UNSUPPORTED]


class TestDecoupled:
    def test_any_number(self, start: Start) -> None:
        stub, executed = run(
            start,
            """
            for n, r in enumerate(requests):
                s = r.get_response_sender()
                for i in range(n):
                    s.send(answer(i))
                s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            """,
            True,
            4,
        )
        assert executed.status == 0 and not executed.responses
        assert [(r.handle, r.flags) for r in stub.responses] == [
            (number, flags) for number in (1, 2, 3, 4) for flags in [PRESENT] * (number - 1) + [FINAL]
        ]
        assert [r["OUT"].tolist() for r in stub.responses if r.handle == 4 and r.outputs] == [[0], [1], [2]]

    def test_closed(self, start: Start) -> None:
        stub, _ = run(
            start,
            """
            first, second = (r.get_response_sender() for r in requests)
            first.send(answer(), 1)
            seen = [refusal(first.send, answer()), refusal(first.send, answer(), 1), refusal(first.send, flags=1)]
            second.send(texts(*seen))
            second.send(flags=1)
            """,
            True,
            2,
        )
        assert flags_of(stub.responses) == [PRESENT | FINAL, PRESENT, FINAL]
        assert [text.decode() for text in stub.responses[1]["OUT"].tolist()] == [CLOSED] * 3

    def test_errors_do_not_close(self, start: Start) -> None:
        stub, _ = run(
            start,
            """
            s = requests[0].get_response_sender()
            s.send(failing("not here", pb_utils.TritonError.NOT_FOUND))
            s.send(answer())
            s.send(failing("the end", pb_utils.TritonError.CANCELLED), 1)
            """,
            True,
        )
        assert flags_of(stub.responses) == [PRESENT | ERROR, PRESENT, PRESENT | ERROR | FINAL]
        assert [(r.error, r.code) for r in stub.responses] == [("not here", 2), ("", 0), ("the end", 7)]

    def test_what_is_not_wanted_is_taken_off(self, start: Start) -> None:
        stub = start(
            executing(
                """
                r = answer()
                extra = pb_utils.InferenceResponse(r.output_tensors() + [pb_utils.Tensor("MORE", np.zeros(3))], parameters={"a": 1})
                requests[0].get_response_sender().send(extra)
                requests[0].get_response_sender().send(answer(len(extra.output_tensors())), 1)
                """
            ),
            decoupled=True,
            outputs=["OUT", "MORE"],
        )
        stub.execute(Request(1, outputs=["OUT"]))
        assert [[o.name for o in r.outputs] for r in stub.responses] == [["OUT"], ["OUT"]]
        assert stub.responses[0].parameters == '{"a": 1}' and stub.responses[1]["OUT"].tolist() == [1]

    @pytest.mark.parametrize("value", ["[answer()]", "answer()", "5", "[]"])
    def test_must_return_none(self, start: Start, value: str) -> None:
        stub, executed = run(start, f"return {value}", True)
        want = "Python model 'm_0_0' is using the decoupled mode and the execute function must return None."
        assert (executed.status, executed.text) == (1, BATCH_ERROR + want)
        assert not stub.responses

    def test_final_then_a_list(self, start: Start) -> None:
        """The failure reaches no one; the log has it."""
        stub, executed = run(start, "requests[0].get_response_sender().send(answer(), 1)\nreturn [answer()]", True)
        assert executed.status == 1 and flags_of(stub.responses) == [PRESENT | FINAL]
        assert any("must return None" in line["message"] for line in stub.logs)

    def test_exception(self, start: Start) -> None:
        """Senders that are open are closed: what threads send afterwards is refused."""
        stub = start(
            executing(
                """
                if requests[0].request_id() == "what came of it":
                    requests[0].get_response_sender().send(texts(*map(refusal, self.sends)), 1)
                    return
                senders = [r.get_response_sender() for r in requests]
                senders[0].send(answer())
                senders[1].send(answer(), 1)
                self.kept = requests[:]
                self.sends = [
                    lambda: senders[0].send(answer()), lambda: senders[0].send(flags=1), lambda: senders[1].send(answer()),
                    lambda: self.kept[2].get_response_sender().send(answer()),
                ]
                raise ValueError("no more")
                """
            ),
            decoupled=True,
        )
        executed = stub.execute(Request(1), Request(2), Request(3))
        assert executed.status == 1 and executed.text.startswith(BATCH_ERROR + "ValueError: no more\n\nAt:\n")
        assert [(r.handle, r.flags) for r in stub.responses] == [(1, PRESENT), (2, PRESENT | FINAL)]
        stub.execute(Request(4, id="what came of it"))
        assert [text.decode() for text in stub.responses[2]["OUT"].tolist()] == [CLOSED] * 4

    def test_buffers_are_used_again(self, start: Start) -> None:
        """What is sent is copied before send returns; a tensor that was sent keeps its bytes."""
        stub, _ = run(
            start,
            """
            s = requests[0].get_response_sender()
            x = np.zeros(10000, np.int32)
            for i in range(3):
                x[:] = i
                s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]))
            tensor = pb_utils.Tensor("OUT", x)
            for i in range(3, 6):
                x[:] = i
                s.send(pb_utils.InferenceResponse([tensor]))
            s.send(flags=1)
            """,
            True,
        )
        assert [set(r["OUT"].tolist()) for r in stub.responses[:6]] == [{0}, {1}, {2}, {3}, {3}, {3}]

    def test_inputs_are_passed_on(self, start: Start) -> None:
        """An input that is sent unchanged is referred to, and its loan ends after what refers to it."""
        stub = start(
            executing(
                """
                def run(request):
                    s = request.get_response_sender()
                    tensor = request.inputs()[0]
                    x = tensor.as_numpy()
                    del request
                    for _ in range(3):
                        s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]))
                    s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x[5:])]), 1)
                if requests[0].request_id() == "join":
                    for thread in self.threads:
                        thread.join()
                    requests[0].get_response_sender().send(flags=1)
                    return
                self.threads = [threading.Thread(target=run, args=(r,)) for r in requests]
                for thread in self.threads:
                    thread.start()
                """
            ),
            decoupled=True,
        )
        x = np.arange(20000)
        stub.execute(Request(1, [("IN", x)]), Request(2, [("IN", x)]))
        while len(stub.responses) < 8:
            stub.responses.append(stub.next_response())
        assert {output.region for r in stub.responses for output in r.outputs} == {1}
        assert [len(r["OUT"]) for r in stub.responses if r.handle == 1] == [20000] * 3 + [19995]
        stub.execute(Request(3, id="join"))  # a thread lets its input go when it ends
        stub.finalize()
        assert not stub.loans

    def test_two_threads_and_one_final(self, start: Start) -> None:
        stub = start(
            executing(
                """
                for r in requests:
                    s = r.get_response_sender()
                    seen = []
                    barrier = threading.Barrier(8)
                    def go(s=s, seen=seen, barrier=barrier):
                        barrier.wait()
                        seen.append(refusal(s.send, answer(), 1))
                    pool = [threading.Thread(target=go) for _ in range(8)]
                    [t.start() for t in pool]; [t.join() for t in pool]
                    assert [text for text in seen if not text.endswith("sender has been closed.")] == [""], seen
                """
            ),
            decoupled=True,
        )
        for _ in range(20):
            executed = stub.execute(Request(1), Request(2))
            assert executed.status == 0, executed.text
        assert flags_of(stub.responses) == [PRESENT | FINAL] * 40

    def test_many_threads(self, start: Start) -> None:
        """Each sender's responses come in its order, whatever the others do."""
        stub = start(
            executing(
                """
                def run(s):
                    for i in range(200):
                        s.send(answer(*[i] * (1 if i % 3 else 2000)))
                    s.send(flags=1)
                for r in requests:
                    threading.Thread(target=run, args=(r.get_response_sender(),)).start()
                """
            ),
            decoupled=True,
        )
        stub.start_batch(*(Request(number) for number in range(1, 9)))
        seen: dict[int, list[int]] = {number: [] for number in range(1, 9)}
        sizes = dict.fromkeys(seen, 0)
        finals = 0
        while finals < 8:
            frame = stub.receive()
            if frame.kind == "EXECUTED":
                continue
            response = stub.response(frame)
            if response.flags == FINAL:
                finals += 1
                continue
            seen[response.handle].append(int(response["OUT"][0]))
            sizes[response.handle] += response.outputs[0].array().nbytes
            for ticket, count in list(stub.kept.items()):
                for _ in range(count):
                    stub.give_back(ticket)
            if len(seen[response.handle]) % 4 == 0:
                stub.credit(response.handle, 4, sizes[response.handle])
                sizes[response.handle] = 0
        assert all(values == list(range(200)) for values in seen.values())


class TestWindow:
    MODEL = executing(
        """
        def run(s, request_id):
            for i in range(100):
                size = 1 if request_id != "large" else 30000
                s.send(answer(*[i] * size))
            s.send(answer(-1), 1)
        for r in requests:
            if r.request_id() == "quick":
                r.get_response_sender().send(answer(), 1)
                continue
            threading.Thread(target=run, args=(r.get_response_sender(), r.request_id())).start()
        """
    )

    def window(self, stub: Supervisor, want: int) -> list[Response]:
        """Take what comes, and see that it is no more than wanted."""
        responses = [stub.next_response() for _ in range(want)]
        with pytest.raises(TimeoutError):
            stub.receive(0.3)
        return responses

    def test_responses(self, start: Start) -> None:
        stub = start(self.MODEL, decoupled=True, window_responses=8)
        stub.start_batch(Request(1))
        stub.finish_batch()
        got = stub.responses
        stub.responses = []
        got += self.window(stub, 8 - len(got))
        stub.credit(1, 3, 12)
        got += self.window(stub, 3)
        # Others go on, and so does the main thread.
        stub.start_batch(Request(2, id="quick"), Request(3))
        stub.finish_batch()
        others = stub.responses
        others += self.window(stub, 9 - len(others))
        assert sorted(r.handle for r in others) == [2] + [3] * 8
        stub.credit(1, 1000, 1000)  # more than is out does no harm
        got += [stub.next_response() for _ in range(101 - 11)]
        assert [int(r["OUT"][0]) for r in got] == [*range(100), -1]
        stub.credit(1, 5, 0)  # it is over

    def test_bytes(self, start: Start) -> None:
        stub = start(self.MODEL, decoupled=True, window_bytes=300000)
        stub.start_batch(Request(1, id="large"))
        stub.finish_batch()
        got = stub.responses + self.window(stub, 3 - len(stub.responses))
        stub.credit(1, 1, 120000)
        got += self.window(stub, 1)
        assert [int(r["OUT"][0]) for r in got] == [0, 1, 2, 3]

    def test_failure_ends_a_wait(self, start: Start) -> None:
        """A thread that waits for room learns by the last CREDIT that its batch has failed."""
        stub = start(
            executing(
                """
                if requests[0].request_id() == "what came of it":
                    self.thread.join(20)
                    requests[0].get_response_sender().send(texts(*self.seen), 1)
                    return
                self.seen = []
                s = requests[0].get_response_sender()
                def run():
                    while not self.seen:
                        text = refusal(s.send, answer())
                        if text:
                            self.seen.append(text)
                self.thread = threading.Thread(target=run)
                self.thread.start()
                while threading.active_count() > 1 and s._sends < 3:
                    time.sleep(0.001)
                raise ValueError
                """
            ),
            decoupled=True,
            window_responses=2,
        )
        stub.start_batch(Request(1))
        assert stub.finish_batch().status == 1
        stub.credit(1, 2, 8)
        stub.start_batch(Request(2, id="what came of it"))
        stub.finish_batch()
        assert stub.responses[-1]["OUT"].tolist() == [CLOSED.encode()]
        assert [r.handle for r in stub.responses] == [1, 1, 2]

    def test_a_signal_handler_ends_a_wait(self, start: Start) -> None:
        """TimeoutError is an OSError, and yet not the end of the way to the server."""
        stub = start(
            executing(
                """
                import signal
                def late(*_):
                    raise TimeoutError("too late")
                s = requests[0].get_response_sender()
                if requests[0].request_id() == "wait":
                    s.send(answer())
                    signal.signal(signal.SIGALRM, late)
                    signal.setitimer(signal.ITIMER_REAL, 0.1)
                    try:
                        s.send(answer())
                    except TimeoutError as error:
                        self.text = str(error)
                    s.send(None, 1)
                else:
                    s.send(texts(self.text), 1)
                """
            ),
            decoupled=True,
            window_responses=1,
        )
        stub.execute(Request(1, id="wait"))
        stub.execute(Request(2))
        assert [(r.handle, r.flags) for r in stub.responses] == [(1, PRESENT), (1, FINAL), (2, PRESENT | FINAL)]
        assert stub.responses[-1]["OUT"].tolist() == [b"too late"]

    def test_memory(self, start: Start) -> None:
        """Without memory send waits for what comes back, and fails where nothing will."""
        stub = start(
            executing(
                """
                s = requests[0].get_response_sender()
                for i in range(6):
                    s.send(answer(*[i] * 100000))
                s.send(answer(*[0] * 400000), 1)
                """
            ),
            decoupled=True,
            max_bytes=1 << 20,
            window_bytes=1 << 30,
        )
        stub.start_batch(Request(1))
        for i in range(6):
            response = stub.next_response()
            assert set(response["OUT"].tolist()) == {i}
            stub.give_back(response.outputs[0].ticket)
        last = stub.next_response()
        assert last.flags == PRESENT | FINAL | ERROR and "Failed to increase the shared memory pool size" in last.error
        executed = stub.finish_batch()
        assert executed.status == 1 and "TritonModelException: Failed to increase the shared memory" in executed.text


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
        assert executed.status == 1 and not executed.responses and executed.text == UNANSWERED  # so that it counts
        (response,) = stub.responses
        assert response.flags == PRESENT | FINAL | ERROR and (response.error, response.code) == (UNANSWERED, 1)
        assert errors(stub) == [UNANSWERED]

    def test_each_of_a_batch_is_logged(self, start: Start) -> None:
        stub, executed = run(start, "requests[1].get_response_sender().send(answer(), 1)", False, 3)
        assert executed.status == 0 and errors(stub) == [UNANSWERED] * 2

    def test_logged_while_a_frame_is_sent(self, start: Start) -> None:
        """A destructor may come in anywhere, also between two steps of a send."""
        stub = start(
            executing(
                """
                from pb_stub.channel import Channel
                if requests[0].request_id() == "keep":
                    kept = requests[:]
                    def write(channel, frame, original=Channel._write):
                        kept.clear()
                        original(channel, frame)
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
        """The client of a model that has one response has got it."""
        stub, _ = run(start, "requests[0].get_response_sender().send(answer())", False)
        assert flags_of(stub.responses) == [PRESENT, FINAL]

    def test_long_afterwards(self, start: Start) -> None:
        """Whoever holds the request or its sender can answer; the end of both ends the request."""
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
    def test_in_a_cycle_of_an_idle_stub(self, start: Start, decoupled: bool, text: str) -> None:
        """Nothing happens in the stub that would have Python collect garbage."""
        stub = start(
            executing(
                """
                (loop,) = (o for o in gc.get_objects() if type(o).__name__ == "Loop")
                loop._senders.forgotten.patience = 0.05
                cycle = [requests[0].get_response_sender(), requests[0]]
                cycle.append(cycle)
                """
            ),
            decoupled=decoupled,
        )
        for handle in (1, 2):  # its thread has slept in between
            assert stub.execute(Request(handle)).status == 0
            response = stub.next_response()
            assert (response.handle, response.flags, response.error) == (handle, PRESENT | FINAL | ERROR, text)
        assert stub.finalize()["error"] == "" and stub.wait_exit() == 0 and not stub.stderr()

    def test_in_a_forked_child(self, start: Start) -> None:
        """The copy that a child has is nobody's sender."""
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


class TestNotDecoupled:
    """§3.3: what may be mixed."""

    def test_send_final(self, start: Start) -> None:
        for value in ("None", "[None]"):
            stub, executed = run(start, f"requests[0].get_response_sender().send(answer(), 1)\nreturn {value}", False)
            assert executed.status == 0 and not executed.responses and flags_of(stub.responses) == [PRESENT | FINAL]

    def test_final_follows(self, start: Start) -> None:
        body = "s = requests[0].get_response_sender()\ns.send(answer())\ns.send(flags=1)"
        stub, executed = run(start, body, False)
        assert executed.status == 0 and flags_of(stub.responses) == [PRESENT, FINAL]

    def test_final_first(self, start: Start) -> None:
        stub, executed = run(start, "requests[0].get_response_sender().send(flags=1)", False)
        assert executed.text.startswith(BATCH_ERROR + f"TritonModelException: {EARLY_FINAL}\n\nAt:\n")
        assert executed.status == 1 and not stub.responses

    def test_two_sends(self, start: Start) -> None:
        """The rule about one response comes before the one about closed senders."""
        stub, _ = run(
            start,
            """
            first, second = (r.get_response_sender() for r in requests)
            first.send(answer(), 1)
            second.send(texts(
                refusal(first.send, answer()), refusal(first.send, answer(), 1), refusal(first.send, flags=1),
                refusal(second.send, flags=1),
            ), 1)
            """,
            False,
            2,
        )
        seen = [text.decode() for text in stub.responses[1]["OUT"].tolist()]
        assert seen == [TWO, TWO, CLOSED, EARLY_FINAL]

    @pytest.mark.parametrize("final", [0, 1])
    def test_send_and_return(self, start: Start, final: int) -> None:
        body = f"requests[0].get_response_sender().send(answer(), {final})\nreturn [answer(), answer()]"
        stub, executed = run(start, body, False, 2)
        errors = [(r.handle, r.error) for r in executed.responses]
        # Who was sent a final response has had it; else an error follows. The other request is answered well.
        assert executed.status == 0 and errors == [(1, BATCH_ERROR + TWO)] * (1 - final) + [(2, "")]
        assert [(r.handle, r.flags) for r in stub.responses] == [(1, PRESENT | FINAL * final)]

    @pytest.mark.parametrize("final", [0, 1])
    def test_send_and_return_alone(self, start: Start, final: int) -> None:
        """Of a batch of one the batch has failed."""
        body = f"requests[0].get_response_sender().send(answer(), {final})\nreturn [answer()]"
        stub, executed = run(start, body, False)
        assert (executed.status, executed.text) == (1, BATCH_ERROR + TWO) and not executed.responses
        assert [(r.handle, r.flags) for r in stub.responses] == [(1, PRESENT | FINAL * final)]

    def test_send_and_raise(self, start: Start) -> None:
        stub, executed = run(
            start, "requests[0].get_response_sender().send(answer(), 1)\nraise ValueError(5)", False, 2
        )
        assert executed.status == 1 and "ValueError: 5" in executed.text
        assert flags_of(stub.responses) == [PRESENT | FINAL]

    def test_return_then_send(self, start: Start) -> None:
        """The response that was returned counts, whether or not anybody had asked for the sender before."""
        stub = start(
            executing(
                """
                if requests[0].request_id() == "what came of it":
                    senders = [self.sender, self.request.get_response_sender()]
                    seen = [refusal(s.send, *args) for s in senders for args in ((answer(),), (None, 1), (answer(), 1))]
                    return [texts(*seen)]
                self.sender = requests[0].get_response_sender()
                self.request = requests[1]
                return [answer(), answer()]
                """
            )
        )
        assert flags_of(stub.execute(Request(1), Request(2)).responses) == [PRESENT | FINAL] * 2
        (response,) = stub.execute(Request(3, id="what came of it")).responses
        assert [text.decode() for text in response["OUT"].tolist()] == [TWO, CLOSED, TWO] * 2
        assert not stub.responses

    def test_later_from_a_thread(self, start: Start) -> None:
        """The instance takes the next batch meanwhile."""
        stub = start(
            executing(
                """
                if requests[0].request_id() == "go":
                    self.go.set()
                    return [answer()]
                self.go = threading.Event()
                def run(s):
                    self.go.wait(20)
                    s.send(answer(1), 1)
                for r in requests:
                    threading.Thread(target=run, args=(r.get_response_sender(),)).start()
                return [None for _ in requests]
                """
            )
        )
        executed = stub.execute(Request(1), Request(2))
        assert executed.status == 0 and not executed.responses and not stub.responses
        assert flags_of(stub.execute(Request(3, id="go")).responses) == [PRESENT | FINAL]
        while len(stub.responses) < 2:
            stub.responses.append(stub.next_response())
        assert sorted(r.handle for r in stub.responses) == [1, 2]

    def test_one_answers_and_one_sends(self, start: Start) -> None:
        body = "requests[1].get_response_sender().send(answer(2), 1)\nreturn [answer(1), None]"
        stub, executed = run(start, body, False, 2)
        assert executed.status == 0 and [r.handle for r in executed.responses] == [1]
        assert [(r.handle, r.flags) for r in stub.responses] == [(2, PRESENT | FINAL)]

    def test_own_list(self, start: Start) -> None:
        """A list that the model empties is its own affair."""
        _, executed = run(start, "answers = [answer() for _ in requests]\nrequests.clear()\nreturn answers", False, 3)
        assert executed.status == 0 and len(executed.responses) == 3


class TestRescheduling:
    def test_not_decoupled(self, start: Start) -> None:
        body = (
            "requests[1].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\nreturn [answer(), None]"
        )
        stub, executed = run(start, body, False, 2)
        assert [(r.handle, r.flags) for r in executed.responses] == [(1, PRESENT | FINAL), (2, RESCHEDULE)]
        assert not stub.responses

    def test_decoupled(self, start: Start) -> None:
        """Responses may be sent before; the sender of this round is closed, the next round has another."""
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

    def test_arguments(self, start: Start) -> None:
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


class TestCoroutines:
    def asynchronous(self, body: str) -> str:
        return executing(body).replace("    def execute", "    async def execute")

    def test_decoupled_ones_overlap(self, start: Start) -> None:
        """Each is acknowledged at once; the second lets the first go on."""
        stub = start(
            self.asynchronous(
                """
                s = requests[0].get_response_sender()
                if requests[0].request_id() == "first":
                    self.event = asyncio.Event()
                    await self.event.wait()
                else:
                    self.event.set()
                s.send(answer(), 1)
                return 5
                """
            ),
            decoupled=True,
        )
        assert not stub.execute(Request(1, id="first")).responses and not stub.responses
        stub.execute(Request(2))
        while len(stub.responses) < 2:
            stub.responses.append(stub.next_response())
        assert sorted((r.handle, r.flags) for r in stub.responses) == [(1, 3), (2, 3)]

    def test_decoupled_ones_return_nothing(self, start: Start) -> None:
        """What is answered, or will be by a thread, is none the worse for it; what is not gets the reason."""
        stub = start(
            self.asynchronous(
                """
                senders = [r.get_response_sender() for r in requests]
                def late():
                    time.sleep(0.05)
                    senders[1].send(answer(), 1)
                senders[0].send(answer(), 1)
                threading.Thread(target=late).start()
                forgotten = senders.pop()
                return [answer() for r in requests]
                """
            ),
            decoupled=True,
        )
        stub.execute(Request(1), Request(2), Request(3))
        while len(stub.responses) < 3:
            stub.responses.append(stub.next_response())
        text = (
            f"{BATCH_ERROR}Python model 'm_0_0' is using the decoupled mode and the execute function must return None."
        )
        assert [(r.handle, r.flags, r.error) for r in stub.responses] == [
            (1, PRESENT | FINAL, ""),
            (3, PRESENT | FINAL | ERROR, text),
            (2, PRESENT | FINAL, ""),
        ]
        assert errors(stub) == [text]

    @pytest.mark.parametrize(
        "statement",
        [
            "raise ValueError('no')",
            "import sys; sys.exit(3)",
            "raise KeyboardInterrupt",
            "raise asyncio.CancelledError",
        ],
    )
    def test_exceptions(self, start: Start, statement: str) -> None:
        """The whole traceback is logged, what is open gets an error, and the loop goes on."""
        stub = start(
            self.asynchronous(
                f"""
                senders = [r.get_response_sender() for r in requests]
                if requests[0].request_id() == "good":
                    await asyncio.sleep(0)
                    senders[0].send(answer(), 1)
                    return
                senders[0].send(answer(), 1)
                senders[1].send(answer())
                await asyncio.sleep(0.01)
                {statement}
                """
            ),
            decoupled=True,
        )
        assert stub.execute(Request(1), Request(2), Request(3)).status == 0
        while len(stub.responses) < 4:
            stub.responses.append(stub.next_response())
        assert [(r.handle, r.flags) for r in stub.responses] == [(1, 3), (2, 1), (2, 7), (3, 7)]
        assert all(r.error.startswith(BATCH_ERROR) and "model.py(" in r.error for r in stub.responses[2:])
        (line,) = (line for line in stub.logs if line["message"].startswith("Traceback (most recent call last):\n"))
        assert line["level"] == 2 and "in execute" in line["message"]
        stub.execute(Request(4, id="good"))
        while len(stub.responses) < 5:
            stub.responses.append(stub.next_response())
        assert (stub.responses[4].handle, stub.responses[4].flags) == (4, 3)

    def test_forgotten_final(self, start: Start) -> None:
        stub = start(self.asynchronous("await asyncio.sleep(0.01)"), decoupled=True)
        stub.execute(Request(1))
        response = stub.next_response() if not stub.responses else stub.responses[0]
        assert response.error == DROPPED

    def test_tasks_that_end_the_loop(self, start: Start) -> None:
        """A SystemExit in a task of the model's own does not take the others with it."""
        stub = start(
            self.asynchronous(
                """
                async def bad():
                    raise SystemExit(3)
                task = asyncio.ensure_future(bad())
                await asyncio.sleep(0.02)
                return [answer()]
                """
            )
        )
        for _ in range(3):
            (response,) = stub.execute(Request(1)).responses
            assert response.flags == PRESENT | FINAL

    def test_one_at_a_time(self, start: Start) -> None:
        stub = start(
            self.asynchronous(
                """
                self.inside = getattr(self, "inside", 0) + 1
                inside = self.inside
                await asyncio.sleep(0.02)
                self.inside -= 1
                return [answer(inside, threading.current_thread() is threading.main_thread()) for _ in requests]
                """
            )
        )
        for number in range(3):
            stub.start_batch(Request(number + 1))
        for batch in range(1, 4):
            frame = stub.receive()
            assert (frame.kind, frame.id) == ("EXECUTED", batch)
            (response,) = stub.executed(frame).responses
            assert response["OUT"].tolist() == [1, 0]

    def test_overlap(self, start: Start) -> None:
        """With the parameter, three run at a time and no more."""
        stub = start(
            self.asynchronous(
                """
                self.inside = getattr(self, "inside", 0) + 1
                self.most = max(getattr(self, "most", 0), self.inside)
                await asyncio.sleep(0.05)
                self.inside -= 1
                if requests[0].request_id() == "raises":
                    raise ValueError("no")
                if requests[0].request_id() == "wrong":
                    return 5
                return [answer(self.most) for _ in requests]
                """
            ),
            async_overlap=3,
        )
        names = {1: "", 2: "", 3: "raises", 4: "wrong", 5: "", 6: ""}
        for number, name in names.items():
            stub.start_batch(Request(number, id=name))
        executed = 0
        responses: list[Response] = []
        while len(responses) < 6 or executed < 6:
            frame = stub.receive()
            if frame.kind == "EXECUTED":
                executed += 1
                assert frame.id == executed and not stub.executed(frame).responses
                assert executed - len(responses) <= 3
            else:
                responses.append(stub.response(frame))
        by = {r.handle: r for r in responses}
        assert [by[n]["OUT"].tolist() for n in (2, 5, 6)] == [[3]] * 3
        assert by[3].error.startswith(BATCH_ERROR + "ValueError: no\n\nAt:\n")
        assert by[4].error == BATCH_ERROR + "Expected a list in the execute return, found type '<class 'int'>'."

    def test_batch_is_known(self, start: Start) -> None:
        """What a coroutine asks of others is asked for its batch."""
        stub = start(
            self.asynchronous(
                """
                from pb_stub.callers import BATCH
                seen = [BATCH.get()]
                async def task():
                    seen.append(BATCH.get())
                await asyncio.sleep(0.01)
                await asyncio.ensure_future(task())
                requests[0].get_response_sender().send(answer(*seen), 1)
                """
            ),
            decoupled=True,
        )
        stub.start_batch(Request(1))
        stub.start_batch(Request(2))
        got: list[Response] = []
        while len(got) < 2:
            frame = stub.receive()
            if frame.kind == "RESPONSE":
                got.append(stub.response(frame))
        assert {r.handle: r["OUT"].tolist() for r in got} == {1: [1, 1], 2: [2, 2]}


class TestCancellation:
    def test_while_it_is_open(self, start: Start) -> None:
        stub = start(
            executing(
                """
                what = requests[0].request_id()
                s = requests[0].get_response_sender()
                if what == "open":
                    self.request = requests[0]
                    return
                old = self.request.get_response_sender()
                if what == "wait":
                    deadline = time.monotonic() + 20
                    while not old.is_cancelled() and time.monotonic() < deadline:
                        time.sleep(0.001)
                seen = [self.request.is_cancelled(), old.is_cancelled(), s.is_cancelled()]
                if what == "wait":
                    old.send(flags=1)
                s.send(answer(*seen), 1)
                """
            ),
            decoupled=True,
        )
        stub.execute(Request(1, id="open"))
        stub.execute(Request(2))
        stub.start_batch(Request(3, id="wait"))
        stub.send("CANCEL", 0, struct.pack("<QQ", 1, 2))
        stub.finish_batch()
        stub.execute(Request(4))  # the last known value, after FINAL
        assert [r["OUT"].tolist() for r in stub.responses if r.outputs] == [[0, 0, 0], [1, 1, 0], [1, 1, 0]]

    def test_ahead(self, start: Start) -> None:
        """A request that lies ahead may be cancelled before it is begun."""
        stub = start(executing("time.sleep(0.05)\nreturn [answer(r.is_cancelled()) for r in requests]"), spin_us=0)
        stub.start_batch(Request(1))
        stub.start_batch(Request(2))
        stub.send("CANCEL", 0, struct.pack("<Q", 2))
        for want in (0, 1):
            (response,) = stub.executed(stub.receive()).responses
            assert response["OUT"].tolist() == [want]

    def test_awaited(self, start: Start) -> None:
        stub = start(
            executing(
                """
                senders = [r.get_response_sender() for r in requests]
                async def other():
                    await asyncio.sleep(0.1)
                    senders[1].send(answer(), 1)
                task = asyncio.ensure_future(other())
                seen = [await s.cancelled() for s in senders]
                senders[0].send(answer(*seen), 1)
                await task
                """
            ).replace("    def execute", "    async def execute"),
            decoupled=True,
        )
        stub.execute(Request(1), Request(2))
        stub.send("CANCEL", 0, struct.pack("<Q", 1))
        while len(stub.responses) < 2:
            stub.responses.append(stub.next_response())
        assert {r.handle: r["OUT"].tolist() for r in stub.responses}[1] == [1, 0]

    def test_many_handles_are_not_kept(self, start: Start) -> None:
        stub = start(
            executing(
                """
                (loop,) = (o for o in gc.get_objects() if type(o).__name__ == "Loop")
                loop._channel.look()
                return [answer(len(loop._senders.cancelled))]
                """
            )
        )
        for i in range(20):
            stub.send("CANCEL", 0, struct.pack("<1000Q", *range(1000 * i, 1000 * i + 1000)))
            stub.execute(Request(1))
        (response,) = stub.execute(Request(1 << 40)).responses
        assert response["OUT"][0] <= 5000
