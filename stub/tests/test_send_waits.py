"""Send waits while its client is too far behind, and while memory is short."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import Start
from frames import ERROR, FINAL, PRESENT, Request, Response
from sending import CLOSED, executing
from supervisor import Supervisor


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
        """Take the responses, and check their maximum number."""
        responses = [stub.next_response() for _ in range(want)]
        with pytest.raises(TimeoutError):
            stub.receive(0.3)
        return responses

    def test_window_bounds_responses(self, start: Start) -> None:
        stub = start(self.MODEL, decoupled=True, window_responses=8)
        stub.start_batch(Request(1))
        stub.finish_batch()
        got = stub.responses
        stub.responses = []
        got += self.window(stub, 8 - len(got))
        stub.credit(1, 3, 12)
        got += self.window(stub, 3)
        # Others continue, including the main thread.
        stub.start_batch(Request(2, id="quick"), Request(3))
        stub.finish_batch()
        others = stub.responses
        others += self.window(stub, 9 - len(others))
        assert sorted(r.handle for r in others) == [2] + [3] * 8
        stub.credit(1, 1000, 1000)  # too much credit has no effect
        got += [stub.next_response() for _ in range(101 - 11)]
        assert [int(r["OUT"][0]) for r in got] == [*range(100), -1]
        stub.credit(1, 5, 0)  # it has ended

    def test_window_bounds_bytes(self, start: Start) -> None:
        stub = start(self.MODEL, decoupled=True, window_bytes=300000)
        stub.start_batch(Request(1, id="large"))
        stub.finish_batch()
        got = stub.responses + self.window(stub, 3 - len(stub.responses))
        stub.credit(1, 1, 120000)
        got += self.window(stub, 1)
        assert [int(r["OUT"][0]) for r in got] == [0, 1, 2, 3]

    def test_failure_ends_a_wait(self, start: Start) -> None:
        """A thread that waits for room learns from the last CREDIT that its batch has failed."""
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
        """TimeoutError is an OSError, but the connection to the server is not lost."""
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

    def test_send_waits_for_memory(self, start: Start) -> None:
        """Without memory, send waits for returned blocks, and fails if none can return."""
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

    def test_memory_comes_back_between_a_try_and_the_look(self, start: Start, tmp_path: Path) -> None:
        """All blocks return while send finds no memory: it tries again before it fails."""
        looks = tmp_path / "looks"
        stub = start(
            executing(
                f"""
                import time
                (loop,) = (o for o in gc.get_objects() if type(o).__name__ == "Loop")
                lent = loop._pool.lent
                def late(senders):
                    open({str(looks)!r}, "w").close()
                    while lent():
                        time.sleep(0.001)
                    return False
                type(loop._senders).can_wait_for_memory = late
                s = requests[0].get_response_sender()
                for i in range(3):
                    s.send(answer(*[i] * 100000))
                s.send(answer(*[0] * 400000), 1)
                """
            ),
            decoupled=True,
            max_bytes=1 << 20,
            window_bytes=1 << 30,
        )
        stub.start_batch(Request(1))
        kept = [stub.next_response() for _ in range(2)]  # there is no room for a third
        until = time.monotonic() + 60
        while not looks.exists():
            assert time.monotonic() < until, "send has not looked whether it can wait"
            time.sleep(0.001)
        for response in kept:
            stub.give_back(response.outputs[0].ticket)
        response = stub.next_response()
        assert set(response["OUT"].tolist()) == {2}
        stub.give_back(response.outputs[0].ticket)
        last = stub.next_response()
        assert last.flags == PRESENT | FINAL | ERROR and "Failed to increase the shared memory pool size" in last.error
        assert stub.finish_batch().status == 1
