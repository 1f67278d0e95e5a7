"""The life of a stub: HELLO, INITIALIZE, FINALIZE, and other ways to exit."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import supervisor
from conftest import Start
from frames import Request
from supervisor import StubDied, Supervisor

from models import IDENTITY

Fail = Callable[..., "tuple[str, Supervisor]"]

TELL = """
    import json, os, sys, locale
    import numpy as np
    import triton_python_backend_utils as pb_utils

    seen = {"path": list(sys.path), "argv": list(sys.argv), "name": __name__, "package": __package__, "file": __file__}

    class TritonPythonModel:
        def initialize(self, args):
            self.args = args

        def execute(self, requests):
            main = sys.modules["__main__"]
            seen.update(
                args=self.args, main=[main.__name__, hasattr(main, "__file__")], executable=sys.executable,
                cwd=os.getcwd(), group=os.getpgrp() == os.getpid(), directory=pb_utils.get_model_dir(),
                environment=os.environ.get("MARK"), modules=sorted(sys.modules),
            )
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], object))])]
"""


def told(stub: Supervisor) -> dict[str, Any]:
    (response,) = stub.execute(Request(1)).responses
    value: dict[str, Any] = json.loads(response["OUT"][0])
    return value


def test_hello_says_which_interpreter(root: Path) -> None:
    with Supervisor(root) as stub:
        assert stub.hello() == {
            "python": ".".join(map(str, sys.version_info[:3])),
            "numpy": np.__version__,
            "executable": sys.executable,
            "prefix": sys.prefix,
            "pid": stub.pid,
        }


class TestWhatAModelSees:
    def test_model_sees_an_ordinary_process(self, start: Start) -> None:
        stub = start(TELL, environment={"MARK": "é"})
        seen = told(stub)
        version = Path(seen["file"]).parent
        directory = version.parent
        assert seen["name"] == "1.model" and seen["package"] == "1"
        assert seen["path"][0] == "" and seen["argv"] == [""]
        assert seen["path"][-3:-1] == [str(version), str(directory)]
        assert seen["main"] == ["__main__", False]
        assert seen["executable"] == sys.executable and seen["cwd"] == os.getcwd() and seen["group"] is True
        assert seen["directory"] == str(version) and seen["environment"] == "é"
        assert seen["args"] == {
            "model_config": "{}",
            "model_instance_kind": "CPU",
            "model_instance_name": "m_0_0",
            "model_instance_device_id": "0",
            "model_repository": str(directory),
            "model_version": "1",
            "model_name": "m0",
        }

    def test_files_beside_the_model_are_importable(self, start: Start, tmp_path: Path) -> None:
        supervisor.model(tmp_path, "value = 1", name="m0", file="beside.py")
        supervisor.model(tmp_path, "value = 2", name="m0", file="json.py")  # installed modules take precedence
        stub = start("""
            from . import beside
            import beside as again
            import json
            import triton_python_backend_utils as pb_utils
            import c_python_backend_utils

            class TritonPythonModel:
                def execute(self, requests):
                    assert beside.value == again.value == 1 and beside is not again and json.dumps
                    assert c_python_backend_utils.Tensor is pb_utils.Tensor
                    return [pb_utils.InferenceResponse([])]
        """)
        assert stub.execute(Request(1)).status == 0

    def test_names_exist_while_the_model_is_imported(self, start: Start) -> None:
        start("""
            from triton_python_backend_utils import Tensor, TritonError, InferenceRequest, InferenceResponse, Logger
            from triton_python_backend_utils import TritonModelException, get_model_dir
            directory = get_model_dir()

            class TritonPythonModel:
                pass
        """)

    def test_a_module_of_the_model_named_as_ours(self, start: Start, tmp_path: Path) -> None:
        """A model may choose the names of its files."""
        for name in ("pb_stub.py", "messages.py", "channel.py"):
            supervisor.model(tmp_path, "mine = 1", name="m0", file=name)
        stub = start("""
            import messages, channel
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def execute(self, requests):
                    assert messages.mine == channel.mine == 1
                    return [pb_utils.InferenceResponse([])]
        """)
        assert stub.execute(Request(1)).status == 0

    def test_an_installed_package_named_as_ours(self, start: Start, tmp_path: Path) -> None:
        """The stub's own modules come first, otherwise two versions of them would mix."""
        for name in ("triton_python_backend_utils", "c_python_backend_utils"):
            (tmp_path / "site" / name).mkdir(parents=True)
            (tmp_path / "site" / name / "__init__.py").write_text("raise ImportError('the installed one')\n")
        stub = start(IDENTITY, environment={"PYTHONPATH": str(tmp_path / "site")})
        (response,) = stub.execute(Request(1, [("IN", np.arange(3))])).responses
        assert response["OUT"].tolist() == [0, 1, 2]

    def test_initialize_is_optional_and_its_result_is_ignored(self, start: Start) -> None:
        start("class TritonPythonModel:\n    def initialize(self, args):\n        return 5")
        start("class TritonPythonModel:\n    pass")

    def test_main_thread(self, start: Start) -> None:
        stub = start("""
            import signal, threading
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def initialize(self, args):
                    assert threading.current_thread() is threading.main_thread()
                    signal.signal(signal.SIGUSR1, lambda *_: None)

                def execute(self, requests):
                    assert threading.current_thread() is threading.main_thread()
                    return [pb_utils.InferenceResponse([])]
        """)
        assert stub.execute(Request(1)).status == 0


class TestBreakpoints:
    MODEL = """
        import os
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                breakpoint()
                return [pb_utils.InferenceResponse([]) for _ in requests]
    """

    def test_a_breakpoint_raises_an_error_with_a_remedy(self, start: Start) -> None:
        answer = start(self.MODEL).execute(Request(1))
        assert "RuntimeError: breakpoint() was called, but a model in a server has no terminal" in answer.text
        assert re.search(r"At:\n  \S+/model\.py\(7\): execute\n", answer.text), answer.text

    def test_breakpoints_are_switched_off(self, start: Start) -> None:
        answer = start(self.MODEL, environment={"PYTHONBREAKPOINT": "0"}).execute(Request(1))
        assert (answer.status, answer.responses[0].error) == (0, "")


class TestModelsThatDoNotStart:
    @pytest.mark.parametrize(
        ("source", "first", "last"),
        [
            ("raise ValueError('why')", "ValueError: why", "/1/model.py(1): <module>"),
            ("import nonsense", "ModuleNotFoundError: No module named 'nonsense'", None),
            ("class Other: pass", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'", None),
            ("raise SystemExit(4)", "SystemExit: 4", "/1/model.py(1): <module>"),
            ("class TritonPythonModel:\n    def __init__(self):\n        lorem_ipsum",
             "NameError: name 'lorem_ipsum' is not defined", "/1/model.py(3): __init__"),
            ("class TritonPythonModel:\n    def initialize(self, args):\n        1 / 0",
             "ZeroDivisionError: division by zero", "/1/model.py(3): initialize"),
        ],
    )  # fmt: skip
    def test_text_says_why(self, fail: Fail, source: str, first: str, last: str | None) -> None:
        text, stub = fail(source)
        assert text.split("\n\nAt:\n")[0] == first
        if last is not None:
            assert f"{last}\n" in text
        (log,) = stub.logs
        message, _, trace = log["message"].partition("\nTraceback (most recent call last):\n")
        assert message == f"Failed to initialize Python stub: {text}"
        assert not trace or (first in trace and 'File "' in trace and "pb_stub" not in trace)
        assert trace or last is None

    def test_no_places(self, fail: Fail) -> None:
        text, _ = fail("def f(:")
        assert text.startswith("SyntaxError: invalid syntax (model.py, line 1)") and "At:" not in text
        text, _ = fail("class TritonPythonModel:\n    def initialize(self): pass")
        assert "takes 1 positional argument but 2 were given" in text and "At:" not in text

    def test_missing_file(self, root: Path, tmp_path: Path) -> None:
        with Supervisor(root) as stub:
            stub.hello()
            path = tmp_path / "m" / "1" / "model.py"
            assert stub.initialize(path)["error"] == f"Python model file not found in '{path}'"
            assert stub.wait_exit() == 1
            assert f"Failed to preinitialize Python stub: Python model file not found in '{path}'" in stub.stderr()

    @pytest.mark.parametrize("where", ["import os; os._exit(7)", "import os; os.kill(os.getpid(), 9)"])
    def test_death_ends_the_wait(self, root: Path, tmp_path: Path, where: str) -> None:
        with Supervisor(root) as stub:
            stub.hello()
            with pytest.raises(StubDied):
                stub.initialize(supervisor.model(tmp_path, where))

    def test_long_text_is_cut(self, fail: Fail) -> None:
        text, _ = fail("raise ValueError('x' * 5000000)")
        assert text.startswith("ValueError: xxx") and 100_000 < len(text.encode()) < 1 << 20


class TestFinalize:
    MODEL = """
        import sys, threading, atexit
        class TritonPythonModel:
            def finalize(self):
                {body}
    """

    def test_orderly_end(self, start: Start) -> None:
        stub = start(self.MODEL.format(body="print('finalized', threading.current_thread().name)"))
        assert stub.finalize() == {"error": ""}
        assert stub.wait_exit() == 0

    def test_is_optional(self, start: Start) -> None:
        stub = start("class TritonPythonModel: pass")
        assert stub.finalize() == {"error": ""} and stub.wait_exit() == 0

    def test_exception_is_reported(self, start: Start) -> None:
        stub = start(self.MODEL.format(body="raise ValueError('late')"))
        text = stub.finalize()["error"]
        assert text.startswith("ValueError: late\n\nAt:\n") and stub.wait_exit() == 0

    def test_exit_handlers_and_output(self, root: Path, tmp_path: Path) -> None:
        path = supervisor.model(
            tmp_path,
            "import atexit, sys\n"
            "atexit.register(lambda: print('handler', file=sys.stderr))\n"
            "class TritonPythonModel:\n    def finalize(self): sys.stderr.write('no newline')",
        )
        with Supervisor(root) as stub:
            stub.hello()
            stub.initialize(path)
            stub.finalize()
            assert stub.wait_exit() == 0
            assert "no newline" in stub.stderr() and "handler" in stub.stderr()

    def test_threads_that_go_on_do_not_keep_it(self, start: Start) -> None:
        stub = start(self.MODEL.format(body="threading.Thread(target=threading.Event().wait).start()"))
        stub.finalize()
        began = time.monotonic()
        assert stub.wait_exit() == 0 and time.monotonic() - began < 15

    def test_buffers_are_flushed_and_cycles_deleted(self, start: Start, tmp_path: Path) -> None:
        """The interpreter shuts down: open files are flushed, and remaining objects are deleted."""
        stub = start(f"""
            import atexit, threading
            import triton_python_backend_utils as pb_utils

            left = open({str(tmp_path / "left")!r}, "w")
            left.write("buffered")

            class TritonPythonModel:
                def __init__(self):
                    self.me = self
                    self.file = open({str(tmp_path / "own")!r}, "w")
                    self.file.write("of its own")
                    self.go_on = threading.Event()
                    atexit.register(left.write, " at exit")
                    threading.Thread(target=late, args=(self.go_on,)).start()
                def __del__(self):
                    pb_utils.Logger.log_info("collected")
                    self.go_on.set()

            def late(go_on):
                go_on.wait()
                left.write(" by a thread")
        """)
        stub.finalize()
        assert [log["message"] for log in stub.logs] == ["collected"]
        assert stub.wait_exit() == 0
        assert (tmp_path / "own").read_text() == "of its own"
        assert (tmp_path / "left").read_text() == "buffered by a thread at exit"

    @pytest.mark.parametrize("body", ["sys.stdout.close()", "import os; print('x'); os.close(1)", "sys.stdout = None"])
    def test_closed_output(self, start: Start, body: str) -> None:
        stub = start(self.MODEL.format(body=body))
        stub.finalize()
        assert stub.wait_exit() == 0

    def test_sys_exit_in_a_handler(self, start: Start) -> None:
        stub = start(self.MODEL.format(body="atexit.register(lambda: 1 / 0)"))
        stub.finalize()
        assert stub.wait_exit() == 0


class TestEnds:
    def test_signals_of_a_terminal_are_swallowed(self, start: Start) -> None:
        stub = start(IDENTITY)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(stub.pid, number)
        assert stub.execute(Request(1, [("IN", np.zeros(1))])).status == 0

    def test_handlers_are_functions(self, start: Start) -> None:
        """Triton has None here, but a forked child must distinguish them from the model's."""
        start(
            "import signal\n"
            "for number in (signal.SIGINT, signal.SIGTERM):\n    assert signal.getsignal(number)(number, None) is None\n"
            "class TritonPythonModel:\n    def execute(self, requests): pass"
        )

    @pytest.mark.parametrize("state", ["idle", "busy", "stopped", "starting"])
    def test_lifeline_kills_the_group(self, root: Path, tmp_path: Path, state: str) -> None:
        path = supervisor.model(
            tmp_path,
            "import os, time\n"
            "child = os.fork()\n"
            "if not child:\n    time.sleep(1000)\n"
            "open(os.path.join(os.path.dirname(__file__), 'child'), 'w').write(str(child))\n"
            "class TritonPythonModel:\n    def execute(self, requests): sum(range(10 ** 15))",
        )
        stub = Supervisor(root)
        try:
            stub.hello()
            if state != "starting":
                stub.initialize(path)
            if state == "busy":
                stub.start_batch(Request(1))
            if state == "stopped":
                os.kill(stub.pid, signal.SIGSTOP)
            os.close(stub.lifeline)
            stub.lifeline = -1
            assert stub.wait_exit() == -signal.SIGKILL
            if state != "starting":
                child = int((path.parent / "child").read_text())
                deadline = time.monotonic() + 20
                while running(child):
                    assert time.monotonic() < deadline, "the model's child lives on"
                    time.sleep(0.01)
        finally:
            stub.close()

    def test_end_of_the_bell(self, root: Path) -> None:
        """If the lifeline does not work, the bell ends the process."""
        with Supervisor(root) as stub:
            stub.hello()
            os.close(stub.bell_out)
            stub.bell_out = -1
            assert stub.wait_exit() == -signal.SIGKILL
            assert "Non-graceful termination detected." in stub.stderr()

    def test_descriptors_that_daemons_close(self, start: Start) -> None:
        """Descriptors that daemonizing programs close are not the stub's."""
        stub = start("""
            import os
            import triton_python_backend_utils as pb_utils

            os.closerange(3, 1000)

            class TritonPythonModel:
                def execute(self, requests):
                    os.closerange(0, 1000)
                    x = requests[0].inputs()[0].as_numpy()
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x * 2)])]
        """)
        array = np.arange(100000)
        for _ in range(3):
            (response,) = stub.execute(Request(1, [("IN", array)])).responses
            np.testing.assert_array_equal(response["OUT"], array * 2)

    def test_closed_descriptors(self, start: Start) -> None:
        """A fatal error is named."""
        stub = start("""
            import os

            class TritonPythonModel:
                def execute(self, requests):
                    os.closerange(3, 65536)
        """)
        stub.start_batch(Request(1))
        assert stub.wait_exit() == 70
        text = stub.stderr()
        assert "the model has closed descriptors that lead to the server: " in text
        for name in ("the bell that wakes it", "the bell that wakes the server", "the line by which it ends with the server"):
            assert f"({name})" in text

    def test_child_that_comes_back(self, start: Start) -> None:
        """A forked child that returns from execute must not answer for its parent."""
        stub = start("""
            import os
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def execute(self, requests):
                    pid = os.fork()
                    if pid:
                        assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 70
                    return [pb_utils.InferenceResponse([])]
        """)
        for number in range(3):
            answer = stub.execute(Request(number))
            assert answer.status == 0 and answer.responses[0].handle == number

    def test_child_that_gives_loans_back(self, start: Start) -> None:
        """The arrays of a child are copies: their end does not end the loan."""
        stub = start("""
            import os
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def execute(self, requests):
                    x = requests[0].inputs()[0].as_numpy()
                    pid = os.fork()
                    if not pid:
                        del x, requests
                        os._exit(0)
                    os.waitpid(pid, 0)
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])]
        """)
        array = np.arange(100000)
        for _ in range(3):
            np.testing.assert_array_equal(stub.execute(Request(1, [("IN", array)])).responses[0]["OUT"], array)
        assert not stub.loans and not stub.released

    def test_children_can_be_terminated_from_their_first_moment(self, start: Start) -> None:
        stub = start("""
            import os, signal, threading
            import numpy as np
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def execute(self, requests):
                    codes = []
                    for number in range(50):
                        child = os.fork()
                        if not child:
                            threading.Event().wait()
                        os.kill(child, signal.SIGTERM)
                        codes.append(os.WTERMSIG(os.waitpid(child, 0)[1]))
                    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(codes + [len(mask)]))])]
        """)
        assert stub.execute(Request(1)).responses[0]["OUT"].tolist() == [15] * 50 + [0]

    def test_multiprocessing_works_in_execute(self, start: Start) -> None:
        stub = start("""
            import multiprocessing
            import numpy as np
            import triton_python_backend_utils as pb_utils

            def work(n):
                return n * n

            class TritonPythonModel:
                def execute(self, requests):
                    with multiprocessing.get_context("fork").Pool(2) as pool:
                        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(pool.map(work, range(4))))])]
        """)
        assert stub.execute(Request(1)).responses[0]["OUT"].tolist() == [0, 1, 4, 9]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class TestProtocol:
    """Protocol violations of a supervisor end the stub, with a message."""

    def test_other_version(self, root: Path) -> None:
        with Supervisor(root, version=3) as stub:
            assert stub.wait_exit() == 76
            assert "stub of m_0_0: the supervisor speaks version 3 of the protocol, this stub 2\n" in stub.stderr()

    def test_usage_is_printed(self, root: Path) -> None:
        import subprocess

        for program in ("triton_python_backend_stub", "nereid_template"):
            result = subprocess.run(
                [sys.executable, str(root / program)], capture_output=True, text=True, check=False, timeout=60
            )
            assert result.returncode == 1 and result.stderr.startswith(f"usage: {program}")
