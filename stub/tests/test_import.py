"""The import of a model, its search path, and allowed kinds of models."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import supervisor
from conftest import Start
from frames import Request
from supervisor import Supervisor

#: A model that answers with the value of an expression, evaluated during execute.
TELL = """
{before}
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        seen = {expression}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], object))])]
"""


def tell(expression: str, before: str = "") -> str:
    return TELL.format(expression=expression, before=textwrap.dedent(before))


def told(stub: Supervisor) -> Any:
    answer = stub.execute(Request(1))
    assert answer.status == 0, answer.text
    return json.loads(answer.responses[0]["OUT"][0])


class TestFiles:
    """Models of several files. The first model that `start` starts is called m0."""

    def put(self, tmp_path: Path, name: str, text: str) -> None:
        path = tmp_path / "m0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_package_beside_the_model(self, start: Start, tmp_path: Path) -> None:
        self.put(tmp_path, "1/pkg/__init__.py", "from .sub import value\n")
        self.put(tmp_path, "1/pkg/sub.py", "value = 5\n")
        self.put(tmp_path, "1/other.py", "from .pkg.sub import value\nfrom . import model\n")
        before = "from . import other\nfrom .pkg import value\nfrom .pkg.sub import value as again\nimport pkg, pkg.sub"
        stub = start(tell("[value, again, other.value, other.model is sys.modules[__name__], pkg.value, pkg.__name__, other.__name__]", before + "\nimport sys"))
        assert told(stub) == [5, 5, 5, True, 5, "pkg", "1.other"]

    def test_namespace_directory(self, start: Start, tmp_path: Path) -> None:
        self.put(tmp_path, "1/plain/deep.py", "value = 7\n")
        assert told(start(tell("[deep.value, again.value]", "from .plain import deep\nimport plain.deep as again"))) == [7, 7]

    def test_files_are_found_in_order(self, start: Start, tmp_path: Path) -> None:
        """The version's directory, then the model's; installed packages precede both."""
        for name in ("both", "above", "json"):
            self.put(tmp_path, f"{name}.py", "where = 'model'\n")
        for name in ("both", "json"):
            self.put(tmp_path, f"1/{name}.py", "where = 'version'\n")
        assert told(start(tell("[both.where, above.where, hasattr(json, 'where')]", "import both, above"))) == ["version", "model", False]

    def test_working_directory_goes_first(self, root: Path, tmp_path: Path) -> None:
        here = tmp_path / "cwd"
        here.mkdir()
        (here / "both.py").write_text("where = 'cwd'\n")
        (here / "colorsys.py").write_text("where = 'cwd'\n")
        self.put(tmp_path, "1/both.py", "where = 'version'\n")
        path = supervisor.model(tmp_path, tell("[both.where, colorsys.where, os.getcwd(), sys.path[0]]", "import both, colorsys, os, sys"), name="m0")
        with Supervisor(root, cwd=here) as stub:
            stub.hello()
            assert stub.initialize(path)["error"] == ""
            assert told(stub) == ["cwd", "cwd", str(here), ""]

    def test_pythonpath_comes_later(self, start: Start, tmp_path: Path) -> None:
        site = tmp_path / "site"
        site.mkdir()
        (site / "both.py").write_text("where = 'site'\n")
        self.put(tmp_path, "1/both.py", "where = 'version'\n")
        assert told(start(tell("both.where", "import both"), environment={"PYTHONPATH": str(site)})) == "site"

    def test_model_by_its_other_name(self, start: Start, tmp_path: Path) -> None:
        """`import model` makes a second module, as in Triton."""
        self.put(tmp_path, "1/sibling.py", "import model\n")
        source = tell("[sibling.model is sys.modules['model'], sibling.model is sys.modules[__name__]]", "import sys")
        assert told(start(source.replace("seen =", "import sibling\n        seen ="))) == [True, False]

    def test_unittest_finds_the_module(self, start: Start) -> None:
        before = """
            import unittest

            class Tests(unittest.TestCase):
                def test_it(self):
                    self.assertEqual(1 + 1, 2)
        """
        run = "unittest.main('model', exit=False, argv=['x']).result"
        assert told(start(tell(f"[(lambda r: [r.testsRun, r.wasSuccessful()])({run})]", before))) == [[1, True]]

    def test_pickle_and_source(self, start: Start) -> None:
        before = """
            import inspect, pickle

            class Thing:
                def __init__(self, value):
                    self.value = value
        """
        expression = "[pickle.loads(pickle.dumps(Thing(3))).value, inspect.getsource(Thing).splitlines()[0], Thing.__module__]"
        assert told(start(tell(expression, before))) == [3, "class Thing:", "1.model"]

    def test_not_main(self, start: Start) -> None:
        before = """
            if __name__ == "__main__":
                raise SystemExit("it is no program")
            import __main__
        """
        assert told(start(tell("[__main__.__name__, sorted(k for k in vars(__main__) if not k.startswith('__'))]", before))) == ["__main__", []]

    def test_names_with_blanks_and_letters(self, root: Path, tmp_path: Path) -> None:
        path = supervisor.model(tmp_path / "Modèle, zwei", tell("[beside.value, __file__]", "from . import beside"), name="m é")
        (path.parent / "beside.py").write_text("value = 'ü'\n", encoding="utf-8")
        with Supervisor(root) as stub:
            stub.hello()
            assert stub.initialize(path)["error"] == ""
            assert told(stub) == ["ü", str(path)]

    def test_compiled_modules_are_kept(self, start: Start, root: Path, tmp_path: Path) -> None:
        """It is stored in the server's folder, and recompiled only if the source has changed."""
        self.put(tmp_path, "1/package/__init__.py", "value = 1\n")
        beside = tmp_path / "m0" / "1" / "package" / "__init__.py"
        writing = {"PYTHONDONTWRITEBYTECODE": ""}
        source = tell("package.value", "import package")

        def compiled() -> tuple[Path, int]:
            (found,) = (root / "bytecode").glob(f"{str(beside.parent).lstrip('/')}/__init__*.pyc")
            return found, found.stat().st_ino

        assert told(start(source, environment=writing)) == 1
        first = compiled()
        assert (root / "bytecode").stat().st_mode & 0o777 == 0o700
        with Supervisor(root, environment=writing) as stub:
            stub.hello()
            assert stub.initialize(tmp_path / "m0" / "1" / "model.py")["error"] == ""
            assert told(stub) == 1
        assert compiled() == first
        beside.write_text("value = 'another'\n")
        with Supervisor(root, environment=writing) as stub:
            stub.hello()
            stub.initialize(tmp_path / "m0" / "1" / "model.py")
            assert told(stub) == "another"
        assert compiled() != first
        assert not list(tmp_path.glob("m0/**/__pycache__"))

    def test_quick_edits_are_seen(self, start: Start, root: Path, tmp_path: Path) -> None:
        """Two edits of equal length within one second, as editors and pipelines make them."""
        writing = {"PYTHONDONTWRITEBYTECODE": ""}
        self.put(tmp_path, "1/beside.py", "value = 1\n")
        beside = tmp_path / "m0" / "1" / "beside.py"
        second = 1_700_000_000_000_000_000
        os.utime(beside, ns=(second, second))
        assert told(start(tell("beside.value", "from . import beside"), environment=writing)) == 1
        assert list((root / "bytecode").rglob("beside.*.pyc"))
        beside.write_text("value = 2\n")
        os.utime(beside, ns=(second, second + 4_000_000))
        with Supervisor(root, environment=writing) as stub:
            stub.hello()
            stub.initialize(tmp_path / "m0" / "1" / "model.py")
            assert told(stub) == 2

    def test_nothing_is_written(self, start: Start, tmp_path: Path) -> None:
        self.put(tmp_path, "1/beside.py", "value = 1\n")
        told(start(tell("beside.value", "from . import beside")))
        assert not list(tmp_path.glob("m0/**/__pycache__"))


class TestFileName:
    @pytest.mark.parametrize("name", ["other.py", "Model2.py", "with-dash.py"])
    def test_another_name_is_the_modules(self, root: Path, tmp_path: Path, name: str) -> None:
        path = supervisor.model(tmp_path, tell("__name__"), file=name, version="17")
        with Supervisor(root) as stub:
            stub.hello()
            assert stub.initialize(path)["error"] == ""
            assert told(stub) == f"17.{path.stem}"

    def test_dots_are_refused(self, root: Path, tmp_path: Path) -> None:
        path = supervisor.model(tmp_path, tell("1"), file="my.model.py")
        with Supervisor(root) as stub:
            stub.hello()
            assert stub.initialize(path)["error"] == "ModuleNotFoundError: No module named '1.my'"


class TestPythonBased:
    """The code is in the backend's folder; the model has only data."""

    def test_code_of_the_backend_runs_for_the_model(self, root: Path, tmp_path: Path) -> None:
        code = tmp_path / "backends" / "llm"
        code.mkdir(parents=True)
        (code / "helper.py").write_text("name = __name__\n")
        expression = "[__name__, __package__, helper.name, pb_utils.get_model_dir(), sys.path]"
        (code / "model.py").write_text(tell(expression, "import helper, sys"))
        version = tmp_path / "repository" / "m" / "1"
        version.mkdir(parents=True)
        with Supervisor(root) as stub:
            stub.hello()
            changes = {"path": str(code / "model.py"), "module": "model", "search": [str(code)], "directory": str(version)}
            assert stub.initialize(version / "model.py", **changes)["error"] == ""
            name, package, helper, directory, path = told(stub)
            assert (name, package, helper, directory) == ("model", "", "helper", str(version))
            assert path[0] == "" and path.count(str(code)) == 1 and str(version) not in path and str(version.parent) not in path


class TestClass:
    """Allowed kinds of TritonPythonModel and of its methods."""

    def test_a_function_may_make_the_model(self, start: Start) -> None:
        stub = start("""
            import triton_python_backend_utils as pb_utils

            class Hidden:
                def execute(self, requests):
                    return [pb_utils.InferenceResponse([]) for _ in requests]

            def TritonPythonModel():
                return Hidden()
        """)
        assert stub.execute(Request(1)).status == 0

    def test_class_may_be_imported(self, start: Start, tmp_path: Path) -> None:
        supervisor.model(tmp_path, tell("__name__"), name="m0", file="inner.py")
        assert told(start("from .inner import TritonPythonModel")) == "1.inner"

    def test_methods_may_be_inherited(self, start: Start) -> None:
        source = tell("self.args['model_name']", "class Base:\n    def initialize(self, args):\n        self.args = args\n    def finalize(self):\n        pass")
        stub = start(source.replace("class TritonPythonModel:", "class TritonPythonModel(Base):"))
        assert told(stub) == "m0"

    def test_methods_of_the_instance(self, start: Start) -> None:
        stub = start("""
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def __init__(self):
                    self.execute = lambda requests: [pb_utils.InferenceResponse([]) for _ in requests]

                def __getattr__(self, name):
                    raise AttributeError(name)
        """)
        assert stub.execute(Request(1)).status == 0

    def test_coroutine_of_initialize_is_not_awaited(self, start: Start) -> None:
        source = tell("vars(self)").replace("    def execute", "    async def initialize(self, args):\n        self.came = True\n\n    def execute")
        stub = start(source)
        assert told(stub) == {}
        assert "coroutine 'TritonPythonModel.initialize' was never awaited" in stub.stderr()

    @pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 makes no event loop by itself")
    def test_loop_of_the_main_thread(self, start: Start) -> None:
        """Models get it in initialize, and run it in their own thread."""
        stub = start("""
            import asyncio, threading, warnings
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def initialize(self, args):
                    warnings.simplefilter("ignore")
                    self.loop = asyncio.get_event_loop()
                    self.thread = threading.Thread(target=self.loop.run_forever)
                    self.thread.start()

                async def answer(self):
                    await asyncio.sleep(0)
                    return pb_utils.InferenceResponse([])

                def execute(self, requests):
                    return [asyncio.run_coroutine_threadsafe(self.answer(), self.loop).result() for _ in requests]

                def finalize(self):
                    self.loop.call_soon_threadsafe(self.loop.stop)
                    self.thread.join()
        """)
        assert stub.execute(Request(1), Request(2)).status == 0
        assert stub.finalize() == {"error": ""} and stub.wait_exit() == 0

    def test_args_are_texts(self, start: Start) -> None:
        source = tell("[type(self.args).__name__, sorted(self.args), all(type(v) is str for v in self.args.values())]").replace(
            "    def execute", "    def initialize(self, args):\n        self.args = args\n\n    def execute"
        )
        assert told(start(source)) == [
            "dict",
            ["model_config", "model_instance_device_id", "model_instance_kind", "model_instance_name", "model_name", "model_repository", "model_version"],
            True,
        ]


#: body of finalize, start of the log
FINALIZES = {
    "with arguments": ("(self, args): pass", r"TypeError: .*finalize\(\) missing 1 required positional argument: 'args'$"),
    "raises": ("(self): raise ValueError('no')", r"ValueError: no\n\nAt:\n  .*/1/model\.py\(2\): finalize\n$"),
    "exits": ("(self): raise SystemExit(3)", r"SystemExit: 3\n\nAt:\n  .*/1/model\.py\(2\): finalize\n$"),
    "interrupted": ("(self): raise KeyboardInterrupt", r"KeyboardInterrupt: <EMPTY MESSAGE>\n\nAt:\n  .*"),
}


class TestFinalize:
    @pytest.mark.parametrize("case", FINALIZES)
    def test_faults_are_logged_alone(self, start: Start, case: str) -> None:
        method, want = FINALIZES[case]
        stub = start(f"class TritonPythonModel:\n    def finalize{method}\n")
        error = stub.finalize()["error"]
        assert re.match(want, error, re.DOTALL), error
        assert [(log["level"], log["message"].partition("\nTraceback")[0]) for log in stub.logs] == [(0, error)]
        assert stub.wait_exit() == 0

    def test_once_and_on_the_main_thread(self, start: Start) -> None:
        stub = start("""
            import threading
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                def finalize(self):
                    pb_utils.Logger.log_info(f"finalize {threading.current_thread() is threading.main_thread()}")
        """)
        assert stub.finalize() == {"error": ""} and stub.wait_exit() == 0
        assert [log["message"] for log in stub.logs] == ["finalize True"]

    def test_coroutine_is_not_awaited(self, start: Start) -> None:
        stub = start("class TritonPythonModel:\n    async def finalize(self):\n        print('awaited')\n")
        assert stub.finalize() == {"error": ""} and stub.wait_exit() == 0

    @pytest.mark.parametrize("where", ["__init__(self)", "initialize(self, args)"])
    def test_not_after_a_failed_start(self, root: Path, tmp_path: Path, where: str) -> None:
        mark = tmp_path / "finalized"
        source = f"class TritonPythonModel:\n    def {where}:\n        raise ValueError\n\n    def finalize(self):\n        open({str(mark)!r}, 'w')\n"
        with Supervisor(root) as stub:
            stub.hello()
            assert stub.initialize(supervisor.model(tmp_path, source))["error"].startswith("ValueError: <EMPTY MESSAGE>")
            assert stub.wait_exit() == 1
        assert not mark.exists()


LOCALES: list[tuple[dict[str, str], list[tuple[Any, Any]]]] = [
    # Since about 3.11, the locale C.UTF-8 has its own name.
    ({"LC_ALL": "C.UTF-8"}, [("C", "UTF-8"), ("en_US", "UTF-8")]),
    ({"LC_ALL": "nonsense"}, [(None, None)]),
    ({"LC_ALL": "C"}, [(None, None)]),
    ({}, [("C", "UTF-8"), ("en_US", "UTF-8")]),
]


@pytest.mark.parametrize(("environment", "want"), LOCALES)
def test_locale_is_pythons_own(root: Path, tmp_path: Path, environment: dict[str, str], want: Any) -> None:
    """Python's default; text is always UTF-8."""
    expression = "[locale.getlocale(), sys.stdout.encoding, sys.getfilesystemencoding(), open(os.devnull).encoding.lower()]"
    path = supervisor.model(tmp_path, tell(expression, "import locale, os, sys\nprint('é')"))
    usual = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
    with Supervisor(root, environment={**usual, **environment}, inherit=False) as stub:
        stub.hello()
        assert stub.initialize(path)["error"] == ""
        found, *encodings = told(stub)
        assert tuple(found) in want
        assert encodings == ["utf-8"] * 3


def test_spawned_process(start: Start) -> None:
    """It imports the model by its name here, and no program of the server."""
    before = """
        import multiprocessing, sys

        def work(queue):
            queue.put([__name__, sys.argv, getattr(sys.modules["__main__"], "__file__", None)])

        def ask():
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            answer = queue.get(timeout=50)
            process.join()
            return [*answer, process.exitcode]
    """
    assert told_slowly(start(tell("ask()", before))) == ["1.model", [""], None, 0]


def told_slowly(stub: Supervisor) -> Any:
    answer = stub.execute(Request(1), timeout=60)
    assert answer.status == 0, answer.text
    return json.loads(answer.responses[0]["OUT"][0])
