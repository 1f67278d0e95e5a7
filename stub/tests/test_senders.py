"""Response senders, decoupled and not: every row of the rules, and flow control."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Start
from frames import ERROR, FINAL, PRESENT, Request
from sending import (
    CLOSED,
    EARLY_FINAL,
    NOTHING,
    SELF_MADE,
    TWO,
    UNSUPPORTED,
    executing,
    flags_of,
    run,
)

from models import BATCH_ERROR


class TestArguments:
    """§3.1: in this order, before any state is touched."""

    @pytest.mark.parametrize("decoupled", [False, True])
    def test_arguments_are_checked_in_order(self, start: Start, decoupled: bool) -> None:
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

    def test_closed_senders_refuse(self, start: Start) -> None:
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

    def test_unrequested_outputs_are_removed(self, start: Start) -> None:
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
        """The failure reaches no client; the log has it."""
        stub, executed = run(start, "requests[0].get_response_sender().send(answer(), 1)\nreturn [answer()]", True)
        assert executed.status == 1 and flags_of(stub.responses) == [PRESENT | FINAL]
        assert any("must return None" in line["message"] for line in stub.logs)

    def test_exception_closes_open_senders(self, start: Start) -> None:
        """Open senders are closed: later sends by threads are rejected."""
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
        """Tensors are copied before send returns; a sent tensor keeps its bytes."""
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
        """An input sent unchanged is referenced, and its loan ends after the reference."""
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
        stub.execute(Request(3, id="join"))  # a thread releases its input when it ends
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
        """Each sender's responses arrive in order, independent of other senders."""
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


class TestNotDecoupled:
    """§3.3: allowed mixtures."""

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
        """The rule about a single response is checked before the one about closed senders."""
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
        failed = [(r.handle, r.error) for r in executed.responses]
        # Clients keep a final response that was sent; otherwise an error follows. The other request
        # succeeds.
        assert executed.status == 0 and failed == [(1, BATCH_ERROR + TWO)] * (1 - final) + [(2, "")]
        assert [(r.handle, r.flags) for r in stub.responses] == [(1, PRESENT | FINAL * final)]

    @pytest.mark.parametrize("final", [0, 1])
    def test_send_and_return_alone(self, start: Start, final: int) -> None:
        """In a batch of one, the batch has failed."""
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
        """The returned response counts, whether or not the sender was requested before."""
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
        """A model may empty its own list."""
        _, executed = run(start, "answers = [answer() for _ in requests]\nrequests.clear()\nreturn answers", False, 3)
        assert executed.status == 0 and len(executed.responses) == 3
