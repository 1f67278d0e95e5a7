"""Logger of a model in a stub."""

from __future__ import annotations

import time

import numpy as np
from conftest import Start
from frames import Request
from pb_stub import _msgpack
from ring import RING
from supervisor import Supervisor

MODEL = """
    import threading
    import triton_python_backend_utils as pb_utils

    pb_utils.Logger.log_info("import")

    class TritonPythonModel:
        def initialize(self, args):
            pb_utils.Logger.log_warn("initialize")

        def execute(self, requests):
            logger = pb_utils.Logger
            logger.log_info("info")
            logger.log_warn("warn")
            logger.log_error("error")
            logger.log_verbose("verbose")
            return [pb_utils.InferenceResponse([])]

        def finalize(self):
            pb_utils.Logger.log_error("finalize")
"""


def taken(stub: Supervisor) -> list[str]:
    messages = [f"{'IWEV'[log['level']]} {log['file']}:{log['line']} {log['message']}" for log in stub.logs]
    stub.logs.clear()
    return messages


def test_lines_have_level_and_source(start: Start) -> None:
    stub = start(MODEL)
    assert taken(stub) == ["W model.py:9 initialize"]
    assert "model.py:5]  import\n" in stub.stderr()  # nobody is listening yet
    stub.execute(Request(1))
    assert taken(stub) == ["I model.py:13 info", "W model.py:14 warn", "E model.py:15 error"]
    stub.finalize()
    assert taken(stub) == ["E model.py:20 finalize"]


def test_settings_choose_the_levels(start: Start) -> None:
    stub = start(MODEL, log={"info": False, "warning": False, "error": True, "verbose": 2})
    stub.execute(Request(1))
    assert taken(stub) == ["E model.py:15 error", "V model.py:16 verbose"]
    stub.send("LOG_SETTINGS", 0, _msgpack.pack({"info": True, "warning": False, "error": False, "verbose": 0}))
    stub.execute(Request(1))
    assert taken(stub) == ["I model.py:13 info"]


def test_long_messages(start: Start) -> None:
    stub = start("""
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                pb_utils.Logger.log_info("x" * 100000)
                pb_utils.Logger.log_info("y" * 5000000)
                return [pb_utils.InferenceResponse([])]
    """)
    stub.execute(Request(1))
    first, second = (log["message"] for log in stub.logs)
    assert first == "x" * 100000
    assert second.startswith("yyy") and second.endswith("… (5000000 characters)") and len(second) < 1 << 20


def test_threads_keep_their_order(start: Start) -> None:
    """Many threads log at once, also while a batch is answered."""
    stub = start("""
        import threading
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                def work(n):
                    for i in range(200):
                        pb_utils.Logger.log_info(f"{n} {i}")
                threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
                for t in threads: t.start()
                for t in threads: t.join()
                return [pb_utils.InferenceResponse([])]
    """)
    stub.execute(Request(1, [("IN", np.zeros(1))]), timeout=60)
    lines = [log["message"].split() for log in stub.logs]
    assert len(lines) == 1600
    for n in range(8):
        assert [int(i) for who, i in lines if who == str(n)] == list(range(200))


def test_more_than_the_ring_holds(start: Start) -> None:
    """The stub waits for room."""
    stub = start("""
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                for i in range(1000):
                    pb_utils.Logger.log_info("x" * 1000)
                return [pb_utils.InferenceResponse([])]
    """)
    stub.start_batch(Request(1))
    deadline = time.monotonic() + 60
    while stub.reader.word(stub.up, 0x040) - stub.reader.at < RING - 2048:  # there is room for at most one more frame
        assert time.monotonic() < deadline, "the ring does not become full"
        time.sleep(0.001)
    stub.finish_batch(60)
    assert len(stub.logs) == 1000


def test_in_destructors_and_signal_handlers(start: Start) -> None:
    """They interrupt the writing of a frame; nothing waits for itself."""
    stub = start("""
        import gc, signal
        import triton_python_backend_utils as pb_utils

        class Noisy:
            def __del__(self):
                pb_utils.Logger.log_info("del")

        class TritonPythonModel:
            def initialize(self, args):
                signal.signal(signal.SIGALRM, lambda *_: pb_utils.Logger.log_info("signal"))
                signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

            def execute(self, requests):
                for i in range(2000):
                    pb_utils.Logger.log_info(f"{i}")
                    cycle = [Noisy()]
                    cycle.append(cycle)
                return [pb_utils.InferenceResponse([])]
    """)
    stub.execute(Request(1), timeout=60)
    numbers = [log["message"] for log in stub.logs if log["message"].isdigit()]
    assert numbers == [str(i) for i in range(2000)]
