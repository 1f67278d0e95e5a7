"""Coroutines as execute, and requests whose clients have gone away."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from conftest import Start
from frames import ERROR, FINAL, PRESENT, Request, Response
from sending import DROPPED, errors, executing

from models import BATCH_ERROR, model


class TestResults:
    def test_result_of_a_coroutine_is_the_answer(self, start: Start) -> None:
        stub = start("""
            import asyncio
            import threading
            import numpy as np
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                async def execute(self, requests):
                    await asyncio.sleep(0.001)
                    main = threading.current_thread() is threading.main_thread()
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([main]))]) for _ in requests]

                def finalize(self):
                    pass
        """)
        for _ in range(3):
            assert stub.execute(Request(1), Request(2)).responses[1]["OUT"].tolist() == [False]
        assert stub.finalize() == {"error": ""}
        assert stub.wait_exit() == 0

    @pytest.mark.parametrize(
        ("body", "first"),
        [
            ("raise ValueError('why')", "ValueError: why"),
            ("raise SystemExit(2)", "SystemExit: 2"),
            ("raise asyncio.CancelledError", "CancelledError: <EMPTY MESSAGE>"),
        ],
    )
    def test_exceptions_name_the_line(self, start: Start, body: str, first: str) -> None:
        stub = start(model(body).replace("def execute", "async def execute"))
        for _ in range(2):
            text = stub.execute(Request(1)).text
            assert text.split("\n\nAt:\n")[0] == BATCH_ERROR + first
            assert text.endswith("/1/model.py(8): execute\n")

    def test_generators_run_as_coroutines(self, start: Start) -> None:
        """Up to Python 3.11, asyncio accepts them as coroutines."""
        stub = start(model("yield from asyncio.sleep(0.001).__await__()\nreturn [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([5]))])]"))
        refused = start(model("yield 5"))
        if sys.version_info < (3, 12):
            assert stub.execute(Request(1)).responses[0]["OUT"].tolist() == [5]
            assert "message: RuntimeError: Task got bad yield: 5\n" in refused.execute(Request(1)).text
        else:
            assert stub.execute(Request(1)).text.endswith("found type '<class 'generator'>'.")

    def test_wrong_result(self, start: Start) -> None:
        stub = start(model("return 5").replace("def execute", "async def execute"))
        assert stub.execute(Request(1)).text.endswith("found type '<class 'int'>'.")


class TestCoroutines:
    def asynchronous(self, body: str) -> str:
        return executing(body).replace("    def execute", "    async def execute")

    def test_decoupled_ones_overlap(self, start: Start) -> None:
        """Each is acknowledged at once; the second lets the first continue."""
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

    def test_decoupled_ones_return_nothing(self, start: Start, tmp_path: Path) -> None:
        """Requests answered before, or later by a thread, are unaffected; others get the reason."""
        stub = start(
            self.asynchronous(
                f"""
                senders = [r.get_response_sender() for r in requests]
                def late():
                    while not os.path.exists({str(tmp_path / "go")!r}):
                        time.sleep(0.001)
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
        for count in (2, 3):
            while len(stub.responses) < count:
                stub.responses.append(stub.next_response())
            (tmp_path / "go").touch()
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
        """The whole traceback is logged, open requests get an error, and the loop continues."""
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
        """A SystemExit in a task of the model does not affect other tasks."""
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

    def test_overlap_is_bounded_by_the_parameter(self, start: Start) -> None:
        """With the parameter, at most three run at a time."""
        stub = start(
            self.asynchronous(
                """
                self.inside = getattr(self, "inside", 0) + 1
                self.most = max(getattr(self, "most", 0), self.inside)
                while self.most < 3:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.05)  # time for one too many to start
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
        """Requests of a coroutine to other models belong to its batch."""
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

    def test_ahead_requests_may_be_cancelled(self, start: Start, tmp_path: Path) -> None:
        """A queued request may be cancelled before it is begun."""
        go = tmp_path / "go"
        wait = f"while not os.path.exists({str(go)!r}):\n    time.sleep(0.001)\n"
        stub = start(executing(wait + "return [answer(r.is_cancelled()) for r in requests]"), spin_us=0)
        stub.start_batch(Request(1))
        stub.start_batch(Request(2))
        stub.send("CANCEL", 0, struct.pack("<Q", 2))
        go.touch()
        for want in (0, 1):
            (response,) = stub.executed(stub.receive()).responses
            assert response["OUT"].tolist() == [want]

    def test_awaited_cancellation_comes(self, start: Start) -> None:
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
