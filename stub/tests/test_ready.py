"""READY?: the model's is_ready, concurrent with its execute."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Start
from frames import Request

MODEL = """
    import os, time
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def is_ready(self):
            BODY

        began = False

        def execute(self, requests):
            held = os.path.join(pb_utils.get_model_dir(), "held")
            open(held, "w").close()
            self.began = True
            while os.path.exists(held):
                time.sleep(0.005)
            return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def model(body: str) -> str:
    return MODEL.replace("BODY", body)


def test_while_idle(start: Start) -> None:
    stub = start(model("return True"))
    for probe in (1, 2, 1 << 40):
        stub.ask(probe)
        assert stub.answer(probe) == (True, "")


def test_during_execute(start: Start, tmp_path: Path) -> None:
    """Frames for the main thread wait for it meanwhile."""
    stub = start(model("return self.began"))
    stub.start_batch(Request(1))
    for probe in range(1, 10000):
        stub.ask(probe)
        if stub.answer(probe) == (True, ""):
            break
    (held,) = tmp_path.glob("*/1/held")
    held.unlink()
    assert stub.finish_batch().status == 0


def test_finalize_does_not_wait_for_a_check(start: Start) -> None:
    stub = start(model("time.sleep(1000)"))
    stub.ask(1)
    assert stub.finalize()["error"] == ""
    assert stub.wait_exit() == 0


def test_forked_child(start: Start) -> None:
    """A child of is_ready that returns is not a stub: it answers nothing, and exits."""
    stub = start(model("return os.fork() != 0"))
    for probe in (1, 2):
        stub.ask(probe)
        assert stub.answer(probe) == (True, "")
    assert stub.finalize()["error"] == ""


@pytest.mark.parametrize("instead", ["is_not_asked = is_also_not_asked", "is_ready = False"])
def test_not_offered(start: Start, instead: str) -> None:
    """READY? for a model without the method is not answered. An attribute is not a method."""
    stub = start(model("pass").replace("is_ready", "is_also_not_asked").replace("began = False", instead))
    stub.ask(1)
    stub.finalize()
    assert any("a frame of kind 7 is not understood" in log["message"] for log in stub.logs)
