"""The files that a model imports with `--dev`, as the stub reports them."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Callable

import supervisor
from conftest import Start
from frames import Request
from supervisor import Supervisor

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils
{before}

class TritonPythonModel:
    def initialize(self, args):
        {initialize}
    {execute} execute(self, requests):
        {body}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1]))])]
"""


def model(before: str = "", initialize: str = "pass", body: str = "pass", execute: str = "def") -> str:
    return MODEL.format(before=before, initialize=initialize, body=body, execute=execute)


class Folder:
    """A user's code, outside the repository."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, name: str, text: str = "") -> str:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return str(path)

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.path)}


def test_reports_follow_imports(start: Start, tmp_path: Path) -> None:
    """Imports of model.py, initialize and execute are reported once, each before its answer."""
    code = Folder(tmp_path / "code")
    helper = code.put("helper.py", "import package.part")
    package, part = code.put("package/__init__.py"), code.put("package/part.py")
    early, late = code.put("early.py"), code.put("late.py")
    beside = tmp_path / "m0" / "1" / "beside.py"
    beside.parent.mkdir(parents=True)
    beside.write_text("")
    source = model("import helper, json, numpy.ma\nfrom . import beside", "import early", "import late")
    stub = start(source, dev=True, environment=code.environment)
    assert [sorted(paths) for paths in stub.imported] == [sorted([helper, package, part]), [early]]
    assert stub.execute(Request(1)).status == 0
    assert stub.imported[2:] == [[late]]
    assert stub.execute(Request(1)).status == 0
    assert len(stub.imported) == 3


def test_an_asynchronous_execute_reports_before_its_answer(start: Start, tmp_path: Path) -> None:
    code = Folder(tmp_path / "code")
    late = code.put("late.py")
    stub = start(model(body="import asyncio; await asyncio.sleep(0); import late", execute="async def"), dev=True, environment=code.environment)
    assert stub.execute(Request(1)).status == 0
    assert stub.imported == [[late]]


def test_no_report_without_dev(start: Start, tmp_path: Path) -> None:
    code = Folder(tmp_path / "code")
    code.put("helper.py")
    stub = start(model("import helper"), environment=code.environment)
    assert stub.execute(Request(1)).status == 0
    assert stub.imported == []


def test_installed_code_is_not_reported(start: Start, tmp_path: Path) -> None:
    """Installed files do not change; those of an editable install do, however it is found."""
    code = Folder(tmp_path / "code")
    code.put("site-packages/installed.py")
    code.put("dist-packages/debian.py")
    linked, listed = code.put("src/linked/__init__.py"), code.put("other/listed.py")
    (tmp_path / "code" / "site-packages" / "linked").symlink_to(tmp_path / "code" / "src" / "linked")
    folders = [str(tmp_path / "code" / name) for name in ("site-packages", "dist-packages", "other")]
    stub = start(model("import installed, debian, linked, listed"), dev=True, environment={"PYTHONPATH": os.pathsep.join(folders)})
    reported = [os.path.realpath(path) for paths in stub.imported for path in paths]
    assert sorted(reported) == sorted([linked, listed])


Fail = Callable[..., "tuple[str, Supervisor]"]


def failed(root: Path, tmp_path: Path, source: str, code: Folder) -> tuple[str, set[str]]:
    """Start a stub whose model fails to initialize; returns the error and the reports."""
    path = supervisor.model(tmp_path, textwrap.dedent(source))
    with Supervisor(root, environment=code.environment) as stub:
        stub.hello()
        answer = stub.initialize(path, dev=True)
        return answer["error"], {path for paths in stub.imported for path in paths}


def test_the_file_that_an_import_failed_in(root: Path, tmp_path: Path) -> None:
    code = Folder(tmp_path / "code")
    good, outer = code.put("good.py"), code.put("outer.py", "import good\nimport broken\n")
    broken = code.put("broken.py", "raise ValueError")
    assert failed(root, tmp_path, model("import outer"), code)[1] == {good, outer, broken}
    code.put("broken.py", "= 1")
    assert failed(root, tmp_path, model("import outer"), code)[1] == {good, outer, broken}
    wrapped = "try:\n    import broken\nexcept SyntaxError as error:\n    raise RuntimeError"
    assert broken in failed(root, tmp_path, model(wrapped), code)[1]


def test_the_places_of_a_module_that_is_missing(root: Path, tmp_path: Path) -> None:
    code = Folder(tmp_path / "code")
    package = code.put("package/__init__.py")
    error, reported = failed(root, tmp_path, model("import missing"), code)
    assert "No module named 'missing'" in error
    assert {code.put("missing.py"), code.put("missing/__init__.py"), str(tmp_path / "code" / "missing")} <= reported
    assert not any("site-packages" in path for path in reported)
    reported = failed(root, tmp_path, model("import package.missing"), code)[1]
    assert {package, str(tmp_path / "code" / "package" / "missing.py")} <= reported


def test_an_import_that_fails_in_execute(start: Start, tmp_path: Path) -> None:
    code = Folder(tmp_path / "code")
    late = code.put("late.py", "import missing")
    stub = start(model(body="import late"), dev=True, environment=code.environment)
    assert stub.execute(Request(1)).status == 1
    assert {late, str(tmp_path / "code" / "missing.py")} <= set(stub.imported[0])


def test_reports_are_bounded(start: Start, tmp_path: Path) -> None:
    """Each fits into a frame, with a limited number of files; a bad name is skipped."""
    code = Folder(tmp_path / "code")
    code.put("helper.py")
    before = """
import sys, types
for number in range(5000):
    module = types.ModuleType(f"made{number}")
    module.__file__ = f"/made/{number:04}/{'long' * 40}.py"
    sys.modules[module.__name__] = module
odd = types.ModuleType("odd")
odd.__file__ = "/made/\\udcff.py"
sys.modules["odd"] = odd
sys.modules["strange"] = 5
"""
    stub = start(model(before), dev=True, environment=code.environment)
    assert sum(len(paths) for paths in stub.imported) == 4096
    assert max(sum(len(path) for path in paths) for paths in stub.imported) <= 16 << 10


def test_extension_modules_are_reported_wherever_they_lie(start: Start, root: Path, tmp_path: Path) -> None:
    """Also those in the model's own folder; the paths of a missing file; one that fails to load."""
    code = Folder(tmp_path / "code")
    before = """
import sys, types
for name, path in (("one", "{code}/one.so"), ("own", __file__.rpartition("/")[0] + "/own.cpython-313.so"), ("of_python", json.__file__.replace("__init__.py", "x.so"))):
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
""".replace("{code}", str(code.path))
    code.path.mkdir()
    stub = start(model("import json\n" + before), dev=True, environment=code.environment)
    assert [sorted(paths) for paths in stub.imported] == [sorted([f"{code.path}/one.so", str(tmp_path / "m0" / "1" / "own.cpython-313.so")])]
    reported = failed(root, tmp_path, model("import missing"), code)[1]
    assert f"{code.path}/missing.so" in reported
    broken = code.put("broken.so", "no library")
    assert broken in failed(root, tmp_path, model("import broken"), code)[1]
