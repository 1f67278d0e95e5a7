"""Signal handlers of the model that raise at any point in the stub, which loses nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import Start
from frames import Request
from sending import executing
from supervisor import StubDied, Supervisor

from models import BATCH_ERROR

MODEL = """
import os, signal, sys, threading
import numpy as np
import triton_python_backend_utils as pb_utils

def late(number, frame):
    raise TimeoutError("too late")

class TritonPythonModel:
    def initialize(self, args):
        signal.signal(signal.SIGALRM, late)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        signal.signal(signal.SIGUSR1, lambda *_: self.marks.append(1))
        self.marks = []

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(self.marks, np.int32))]) for _ in requests]
"""


def asleep(stub: Supervisor) -> None:
    """Wait until the stub sleeps in a read of its bell."""
    until(lambda: Path(f"/proc/{stub.pid}/wchan").read_text() not in ("0", "") or sleeping(stub))


def sleeping(stub: Supervisor) -> bool:
    return Path(f"/proc/{stub.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def until(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def tracebacks(stub: Supervisor) -> int:
    """Return the number of exceptions in the last line of the log."""
    return int(stub.logs[-1]["message"].count("Traceback (most recent call last)"))


def handled(stub: Supervisor, number: int) -> None:
    """Send a signal to the idle stub and wait until it has been delivered."""
    os.kill(stub.pid, number)

    def delivered() -> bool:
        text = Path(f"/proc/{stub.pid}/status").read_text()
        pending = [int(line.split()[1], 16) for line in text.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
        return not any(mask >> (number - 1) & 1 for mask in pending) and sleeping(stub)

    until(delivered)


class TestWhileTheStubIsIdle:
    @pytest.mark.parametrize(
        ("number", "text", "line", "name"),
        [(signal.SIGALRM, "TimeoutError: too late", 7, "late"), (signal.SIGTERM, "SystemExit: 3", 12, "<lambda>")],
    )
    def test_the_next_execute_fails(
        self, start: Start, tmp_path: Path, number: int, text: str, line: int, name: str
    ) -> None:
        """The text is Triton 2.51's: it has the first line of execute."""
        stub = start(MODEL)
        assert stub.execute(Request(1)).status == 0
        asleep(stub)
        handled(stub, number)
        failed = stub.execute(Request(2))
        path = tmp_path / "m0" / "1" / "model.py"
        assert failed.status == 1
        assert failed.text == f"{BATCH_ERROR}{text}\n\nAt:\n  {path}({line}): {name}\n  {path}(16): execute\n"
        assert stub.execute(Request(3)).status == 0

    def test_a_handler_that_returns_runs_at_once(self, start: Start) -> None:
        stub = start(MODEL)
        assert stub.execute(Request(1)).responses[0]["OUT"].tolist() == []
        asleep(stub)
        handled(stub, signal.SIGUSR1)
        assert stub.execute(Request(2)).responses[0]["OUT"].tolist() == [1]

    def test_of_many_the_newest_is_kept(self, start: Start) -> None:
        """They do not accumulate in log or memory: earlier ones are freed, with their objects."""
        stub = start(
            MODEL.replace('TimeoutError("too late")', "Late()").replace(
                "np.array(self.marks, np.int32)", "np.array([len(alive)], np.int32)"
            )
            + """
import weakref
alive = weakref.WeakSet()

class Late(Exception):
    def __init__(self):
        super().__init__("too late")
        alive.add(self)
"""
        )
        asleep(stub)
        for _ in range(50):
            handled(stub, signal.SIGALRM)
        handled(stub, signal.SIGTERM)
        assert "SystemExit: 3" in stub.execute(Request(1)).text
        assert tracebacks(stub) == 1
        assert "too late" not in stub.logs[-1]["message"]
        assert stub.execute(Request(2)).responses[0]["OUT"].tolist() == [0]

    def test_the_same_one_again_and_again(self, start: Start) -> None:
        """Python extends an exception's traceback each time it is raised."""
        stub = start(MODEL.replace('TimeoutError("too late")', "same") + '\nsame = TimeoutError("too late")\n')
        asleep(stub)
        for _ in range(20):
            handled(stub, signal.SIGALRM)
        assert f"{BATCH_ERROR}TimeoutError: too late\n\nAt:" in stub.execute(Request(1)).text
        assert stub.logs[-1]["message"].count("in late") == 1

    def test_during_the_report_of_another(self, start: Start) -> None:
        """The next batch fails with it, without the failure of the batch before."""
        stub = start(
            MODEL.replace('TimeoutError("too late")', "Late()")
            + """
class Late(Exception):
    def __str__(self):
        signal.raise_signal(signal.SIGALRM)
        return "too late"
"""
        )
        asleep(stub)
        handled(stub, signal.SIGALRM)
        for number in range(1, 5):
            assert f"{BATCH_ERROR}Late: too late\n\nAt:" in stub.execute(Request(number)).text
            assert tracebacks(stub) == 1

    def test_timer_without_end(self, start: Start, tmp_path: Path) -> None:
        """Every request is answered at once, even if the timer has been running."""
        ticks = tmp_path / "ticks"
        stub = start(f"""
            import os, signal
            import triton_python_backend_utils as pb_utils

            ticks = os.open({str(ticks)!r}, os.O_WRONLY | os.O_CREAT)

            def late(number, frame):
                os.write(ticks, b".")
                raise TimeoutError("too late")

            class TritonPythonModel:
                def initialize(self, args):
                    signal.signal(signal.SIGALRM, late)
                    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)

                def execute(self, requests):
                    return [pb_utils.InferenceResponse([]) for _ in requests]

                def finalize(self):
                    signal.setitimer(signal.ITIMER_REAL, 0)
        """)
        until(lambda: ticks.stat().st_size > 1000)
        failed = 0
        for number in range(1, 20):
            result = stub.execute(Request(number))
            if result.status:
                assert "TimeoutError: too late" in result.text
                assert tracebacks(stub) == 1
                failed += 1
        assert failed
        assert stub.finalize()["error"].partition("\n")[0] in ("", "TimeoutError: too late")

    def test_finalize_runs(self, start: Start, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        stub = start(MODEL + f"    def finalize(self):\n        open({str(mark)!r}, 'w').close()\n")
        asleep(stub)
        handled(stub, signal.SIGALRM)
        assert stub.finalize()["error"] == ""
        assert stub.wait_exit() == 0
        assert any("TimeoutError: too late" in log["message"] for log in stub.logs)
        assert mark.exists()


class TestInACallOfTheModel:
    def test_exec_is_left(self, start: Start) -> None:
        """exec raises it in the model's frame, whether this thread or another one reads."""
        stub = start(
            executing(
                """
                import signal
                def late(*_):
                    raise TimeoutError("too late")
                signal.signal(signal.SIGALRM, late)
                request = lambda: pb_utils.InferenceRequest(model_name="other", requested_output_names=["OUT"], inputs=[])
                if requests[0].request_id() == "two":
                    other = threading.Thread(target=lambda: request().exec(), daemon=True)
                    other.start()
                    while other.is_alive() and not reading(other):
                        time.sleep(0.001)
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                try:
                    request().exec()
                except TimeoutError as error:
                    return [texts(str(error))]
                """
            )
            + """
    pass

def reading(thread):
    import sys
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_name in ("_sleep", "_await_bell")
"""
        )
        for name in ("one", "two"):
            stub.start_batch(Request(1, id=name))
            kinds = []
            frame = stub.receive()
            while frame.kind != "EXECUTED":
                kinds.append(frame.kind)
                frame = stub.receive()
            result = stub.executed(frame)
            assert not result.text, result.text
            assert kinds == ["INFER"] * (name == "two") + ["INFER", "STOP_INFER"]
            assert result.responses[0]["OUT"].tolist() == [b"too late"]

    def test_the_coroutine_of_a_batch_is_left(self, start: Start) -> None:
        stub = start("""
            import asyncio, signal

            def late(*_):
                raise TimeoutError("too late")

            class TritonPythonModel:
                async def execute(self, requests):
                    signal.setitimer(signal.ITIMER_REAL, 0.05)
                    await asyncio.sleep(3600)

                def initialize(self, args):
                    signal.signal(signal.SIGALRM, late)
        """)
        for _ in range(2):
            assert "TimeoutError: too late" in stub.execute(Request(1)).text

    def test_a_short_call_is_left_when_it_returns(self, start: Start) -> None:
        """It is raised while the stub's own code runs, at a moment chosen by the test."""
        stub = start(
            executing(
                """
                import signal
                def late(*_):
                    raise TimeoutError("too late")
                signal.signal(signal.SIGALRM, late)
                sender = requests[0].get_response_sender()
                sender._outlet._senders.channel._send = None  # only Python can be interrupted
                channel = type(sender._outlet._senders.channel)
                write = channel._write
                def interrupted(self, frame):
                    signal.raise_signal(signal.SIGALRM)
                    write(self, frame)
                interrupted.__code__ = interrupted.__code__.replace(co_filename=write.__code__.co_filename)
                channel._write = interrupted
                try:
                    sender.send(texts("sent"), 1)
                    deadline = time.monotonic() + 30
                    while time.monotonic() < deadline:
                        time.sleep(0.001)
                    self.text = "never"
                    raise ValueError("never")
                except TimeoutError as error:
                    self.text = str(error)
                finally:
                    channel._write = write
                pb_utils.Logger.log_info(self.text)
                """
            ),
            decoupled=True,
        )
        assert stub.execute(Request(1)).status == 0, stub.logs
        assert stub.responses[-1]["OUT"].tolist() == [b"sent"]
        assert [log["message"] for log in stub.logs] == ["too late"]

    def test_storm_of_handlers_loses_no_request(self, start: Start) -> None:
        """Handlers raise repeatedly, anywhere in the stub.

        Requests are answered, and locks released.
        """
        stub = start(
            executing(
                """
                import signal
                left = [40]
                def late(*_):
                    left[0] -= 1
                    if left[0] <= 0:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    raise TimeoutError("too late")
                signal.signal(signal.SIGALRM, late)
                value = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
                signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
                while left[0] > 0:
                    try:
                        for _ in range(200):
                            pb_utils.Logger.log_info("x")
                            tensor = pb_utils.Tensor("OUT", value * 2)
                            pb_utils.InferenceRequest(
                                model_name="other", requested_output_names=["OUT"], inputs=[tensor]
                            ).exec()
                    except TimeoutError:
                        pass
                return [answer(*value.tolist())]
                """
            )
            + "\n    def finalize(self):\n        gc.collect()  # exceptions of handlers hold frames in circles\n"
        )
        array = np.arange(2000, dtype=np.int32)
        good = 0
        for number in range(100):
            stub.start_batch(Request(number + 1, [("IN", array)]))
            frame = stub.receive()
            while frame.kind in ("INFER", "STOP_INFER"):
                frame = stub.receive()
            result = stub.executed(frame)
            if result.status:
                assert "TimeoutError: too late" in result.text  # it came outside of the model's try
                continue
            assert result.responses[0]["OUT"].tolist() == array.tolist()
            good += 1
            if good == 4:
                break
        assert stub.finalize()["error"] == ""
        with pytest.raises(StubDied):
            stub.receive()  # RELEASED may follow FINALIZED
        assert stub.wait_exit() == 0
        assert good == 4 and not stub.loans


class TestWhatTheModelSees:
    def test_its_own_handlers(self, start: Start) -> None:
        start("""
            import signal
            from signal import SIGALRM, SIGUSR1, SIGUSR2, getsignal
            import _signal

            def one(*_): pass
            def two(*_): raise ValueError

            class TritonPythonModel:
                def initialize(self, args):
                    assert signal.signal(SIGUSR1, one) == signal.SIG_DFL
                    assert getsignal(SIGUSR1) is _signal.getsignal(SIGUSR1) is one
                    assert signal.signal(SIGUSR1, two) is one
                    try:
                        signal.raise_signal(SIGUSR1)
                    except ValueError:
                        pass
                    else:
                        raise AssertionError
                    assert signal.signal(SIGUSR1, signal.SIG_IGN) is two
                    assert signal.signal(SIGUSR1, signal.default_int_handler) is signal.SIG_IGN
                    assert getsignal(SIGUSR1) is signal.default_int_handler

                def execute(self, requests): pass
        """)
