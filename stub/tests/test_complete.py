"""AUTO_COMPLETE: the completed config, and the stub afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
from pathlib import Path
from typing import Any, Iterator

import pytest
import supervisor
from frames import Request
from supervisor import StubDied, Supervisor

CONFIG = {"name": "m", "max_batch_size": 4, "input": [], "output": []}

HEAD = """
    import ctypes, os, signal, sys, threading
    import triton_python_backend_utils as pb_utils

    imports = []
    imports.append(len(imports))
"""
ANSWER = """
        def execute(self, requests):
            return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def completing(body: str, before: str = "") -> str:
    """A model whose auto_complete_config has this body."""
    head = textwrap.dedent(HEAD) + textwrap.dedent(before)
    method = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return head + f"\nclass TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n{method}\n" + (
        textwrap.indent(textwrap.dedent(ANSWER), "    ")
    )


class Stubs:
    def __init__(self, root: Path, directory: Path) -> None:
        self.root, self.directory = root, directory
        self.started: list[Supervisor] = []

    def start(self, source: str) -> tuple[Supervisor, Path]:
        path = supervisor.model(self.directory, source, name=f"m{len(self.started)}")
        stub = Supervisor(self.root)
        self.started.append(stub)
        stub.hello()
        return stub, path

    def complete(self, source: str, config: Any = None) -> tuple[dict[str, Any], Supervisor, Path]:
        stub, path = self.start(source)
        return stub.complete(path, json.dumps(config or CONFIG)), stub, path


@pytest.fixture
def stubs(root: Path, tmp_path: Path) -> Iterator[Stubs]:
    stubs = Stubs(root, tmp_path)
    yield stubs
    for stub in stubs.started:
        stub.close()


class TestAnswer:
    def test_config(self, stubs: Stubs) -> None:
        source = completing(
            """
            assert type(config) is pb_utils.ModelConfig
            config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [4], "optional": True})
            config.add_output({"name": "OÜT", "data_type": "TYPE_FP32", "dims": [4]})
            config.set_max_batch_size(8)
            config.set_dynamic_batching()
            config.set_model_transaction_policy({"decoupled": False})
            return config
            """
        )
        fields, _, _ = stubs.complete(source)
        assert fields["error"] == ""
        assert json.loads(fields["config"]) == {
            "name": "m",
            "max_batch_size": 8,
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4], "optional": True}],
            "output": [{"name": "OÜT", "data_type": "TYPE_FP32", "dims": [4]}],
            "dynamic_batching": {},
            "model_transaction_policy": {"decoupled": False},
        }

    def test_nothing_to_say(self, stubs: Stubs) -> None:
        fields, stub, _ = stubs.complete("class TritonPythonModel:\n    pass\n")
        assert fields == {"error": "", "config": ""}
        stub.send("FINALIZE")
        assert stub.wait_exit() == 0

    def test_another_config_object(self, stubs: Stubs) -> None:
        fields, _, _ = stubs.complete(completing("""return pb_utils.ModelConfig('{"name": "other"}')"""))
        assert json.loads(fields["config"]) == {"name": "other"}

    def test_classmethod(self, stubs: Stubs) -> None:
        source = completing("return config").replace("@staticmethod", "@classmethod").replace("(config):", "(cls, config):")
        fields, _, _ = stubs.complete(source)
        assert json.loads(fields["config"]) == CONFIG

    def test_long_config(self, stubs: Stubs) -> None:
        """A large config is sent and returned in blocks, because frames are shorter."""
        config = {**CONFIG, "parameters": {f"p{i}": {"string_value": "x" * 100} for i in range(1000)}}
        fields, stub, path = stubs.complete(completing("return config"), config)
        assert json.loads(fields["config"]) == config
        assert stub.initialize(path)["error"] == ""
        assert not stub.loans

    def test_modules_available_to_auto_complete(self, stubs: Stubs) -> None:
        source = completing(
            """
            pb_utils.Logger.log_info("to stderr")
            pb_utils.Logger.log_verbose("this too")
            config.as_dict()["seen"] = [pb_utils.get_model_dir(), threading.current_thread() is threading.main_thread(),
                                        __name__, sys.argv]
            return config
            """
        )
        fields, stub, path = stubs.complete(source)
        assert json.loads(fields["config"])["seen"] == [str(path.parent), True, "1.model", [""]]
        lines = stub.stderr().splitlines()
        assert [line.split("]  ")[1] for line in lines] == ["to stderr", "this too"]
        assert all(line.startswith("I") and f" {stub.pid} model.py:" in line for line in lines)
        assert not stub.logs


#: body, code before the class, the error or its start
REFUSED = {
    "none": ("pass", "", "auto_complete_config function in model 'm0' must return a valid pb.ModelConfig object."),
    "dict": ("return config.as_dict()", "", "auto_complete_config function in model 'm0' must return a valid pb.ModelConfig object."),
    "coroutine": ("return config", "ASYNC", "auto_complete_config function in model 'm0' must return a valid pb.ModelConfig object."),
    "raises": ("config.set_max_batch_size(1)", "", "ValueError: configuration specified max_batch_size 4, but in auto-complete-config function for model 'm' specified max_batch_size 1\n\nAt:\n  "),
    "exits": ("sys.exit(3)", "", "SystemExit: 3\n\nAt:\n  "),
    "not JSON": ("config.as_dict()['x'] = {1, 2}\nreturn config", "", "TypeError: Object of type set is not JSON serializable\n\nAt:\n  "),
    "NaN": ("config.as_dict()['x'] = float('nan')\nreturn config", "", "Failed to accept document, invalid JSON."),
    "infinity": ("config.as_dict()['x'] = float('inf')\nreturn config", "", "Failed to accept document, invalid JSON."),
    "surrogate": ("config.as_dict()['x'] = '\\ud800'\nreturn config", "", "Failed to parse auto-complete JSON."),
    "too long": ("config.as_dict()['x'] = 'x' * 2000000\nreturn config", "", "the completed config has 2000"),
    "import": ("return config", "import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'\n\nAt:\n  "),
    "signature": ("return config", "NOSTATIC", "TypeError: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(stubs: Stubs, case: str) -> None:
    body, before, want = REFUSED[case]
    source = completing(body, "" if before.isupper() else before)
    if before == "ASYNC":
        source = source.replace("def auto_complete_config", "async def auto_complete_config")
    if before == "NOSTATIC":
        source = source.replace("auto_complete_config(config)", "auto_complete_config()")
    fields, stub, path = stubs.complete(source)
    assert fields["config"] == ""
    # From Python 3.14 on, json adds notes that say where in the document it was.
    error = re.sub(r"\n__notes__ \(len=1\):\nwhen serializing [^\n]*", "", fields["error"])
    assert error.startswith(want) if want.endswith(" ") else error[: len(want)] == want
    if "\n\nAt:\n" in want and case != "import":
        assert case == "not JSON" or (f"{path}(" in fields["error"] and "auto_complete_config" in fields["error"])
    assert "pb_stub" not in fields["error"]
    assert stub.wait_exit() == 1
    (log,) = stub.logs
    assert log["level"] == 2
    message, _, trace = log["message"].partition("\nTraceback (most recent call last):\n")
    assert message == f"Failed to initialize Python stub for auto-complete: {fields['error']}"
    assert "pb_stub" not in trace


def test_no_class(stubs: Stubs) -> None:
    fields, stub, _ = stubs.complete("x = 1\n")
    assert fields["error"].startswith("AttributeError: module '1.model' has no attribute 'TritonPythonModel'")
    assert stub.wait_exit() == 1


def test_no_file(stubs: Stubs) -> None:
    stub, path = stubs.start("")
    path.unlink()
    fields = stub.complete(path, json.dumps(CONFIG))
    assert fields["error"] == f"Python model file not found in '{path}'"
    assert f"Failed to preinitialize Python stub: Python model file not found in '{path}'" in stub.stderr()


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "ctypes.string_at(0)"])
def test_dies(stubs: Stubs, how: str) -> None:
    stub, path = stubs.start(completing(how))
    with pytest.raises(StubDied):
        stub.complete(path, json.dumps(CONFIG))


class TestAfterwards:
    SOURCE = """
        import os, sys, threading
        import numpy as np
        import triton_python_backend_utils as pb_utils

        calls = ["import"]

        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                calls.append("complete")
                return config

            def __init__(self):
                calls.append("make")

            def initialize(self, args):
                calls.append("initialize")
                pb_utils.Logger.log_info("to the server")

            def execute(self, requests):
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([c.encode() for c in calls], object))])]

            def finalize(self):
                open(os.environ["MARK"], "w").write("finalized")
    """

    def test_initialize(self, root: Path, tmp_path: Path) -> None:
        """The same process continues.

        The model is imported once, and later frames behave as usual.
        """
        path = supervisor.model(tmp_path, textwrap.dedent(self.SOURCE))
        mark = tmp_path / "mark"
        with Supervisor(root, environment={"MARK": str(mark)}) as stub:
            stub.hello()
            assert json.loads(stub.complete(path, json.dumps(CONFIG))["config"]) == CONFIG
            settings = {"log": {"info": True, "warning": True, "error": True, "verbose": 1}}
            assert stub.initialize(path, outputs=["OUT"], **settings)["error"] == ""
            (response,) = stub.execute(Request(1)).responses
            assert list(response["OUT"]) == [b"import", b"complete", b"make", b"initialize"]
            assert [log["message"] for log in stub.logs] == ["to the server"]
            assert stub.finalize()["error"] == ""
            assert stub.wait_exit() == 0
        assert mark.read_text() == "finalized"

    def test_finalize(self, root: Path, tmp_path: Path) -> None:
        """A stub that is not needed exits cleanly without finalize."""
        source = textwrap.dedent(self.SOURCE) + "\nimport atexit\natexit.register(lambda: print('left', file=sys.stderr))\n"
        path = supervisor.model(tmp_path, source)
        mark = tmp_path / "mark"
        with Supervisor(root, environment={"MARK": str(mark)}) as stub:
            stub.hello()
            stub.complete(path, json.dumps(CONFIG))
            stub.send("FINALIZE")
            assert stub.wait_exit() == 0
            assert stub.stderr() == "left\n"
        assert not mark.exists()

    def test_twice(self, stubs: Stubs) -> None:
        _, stub, path = stubs.complete(completing("return config"))
        stub.send("AUTO_COMPLETE")  # which is ignored
        assert stub.initialize(path)["error"] == ""
        assert "a frame of kind 12 came before INITIALIZE" in stub.stderr()

    def test_supervisor_dies(self, stubs: Stubs) -> None:
        _, stub, _ = stubs.complete(completing("return config"))
        os.close(stub.lifeline)
        stub.lifeline = -1
        assert stub.wait_exit() == -signal.SIGKILL
