"""The template: it forks stubs on demand, which behave like started ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest
import supervisor
from frames import Request
from pb_stub import _msgpack, accelerator, process
from supervisor import Supervisor
from template import Template

from models import IDENTITY


@pytest.fixture
def template(root: Path) -> Iterator[Template]:
    made = Template(root)
    yield made
    made.close()


class Forked:
    """A Supervisor whose stub is forked by a template."""

    def __init__(self, root: Path, template: Template, instance: str = "m_0_0") -> None:
        reader, writer = os.pipe()
        self.output = reader
        self.stub = Supervisor(
            root, instance=instance, spawn=lambda fds, _: template.fork(instance, fds, writer, writer)
        )
        os.close(writer)

    def end(self) -> tuple[int, str]:
        """Wait for the end: the exit code, negative for a signal, and the output."""
        with os.fdopen(self.output, "rb") as stream:
            printed = stream.read().decode()
        code = self.stub.wait_exit()
        self.stub.close()
        return code, printed


def test_hello_says_which_interpreter(template: Template) -> None:
    assert template.hello == {
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "pid": template.process.pid,
        "threads": [],
        "no_accelerator": accelerator.reason,
        "accelerator_failed": False,
        "free_threaded": process.FREE_THREADED,
    }
    assert Path(f"/proc/{template.process.pid}/comm").read_text() == "nereid_template\n"


def test_threads_of_the_start(root: Path, tmp_path: Path) -> None:
    """Threads of `sitecustomize` are reported: forks would lack them."""
    (tmp_path / "sitecustomize.py").write_text(
        "import _thread, threading\n"
        "threading.Thread(target=threading.Event().wait, name='of the site', daemon=True).start()\n"
    )
    made = Template(root, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    try:
        assert made.hello["threads"] == ["of the site"]
    finally:
        made.close()


def test_forked_stubs_are_the_supervisors_children(root: Path, tmp_path: Path, template: Template) -> None:
    source = "import random\nfirst = random.random(), np.random.random()\nimport os, sys\nprint('hello', os.getcwd())\n"
    path = supervisor.model(tmp_path, "import numpy as np\n" + source + "class TritonPythonModel: pass\n")
    forked = [Forked(root, template, f"m_0_{n}") for n in range(3)]
    for one in forked:
        assert one.stub.hello()["pid"] == one.stub.pid
        assert one.stub.initialize(path)["error"] == ""
        assert Path(f"/proc/{one.stub.pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
        assert os.getpgid(one.stub.pid) == one.stub.pid
        title = Path(f"/proc/{one.stub.pid}/cmdline").read_bytes()
        assert title.startswith(b"triton_python_backend_stub m_0_")
        descriptors = {os.readlink(f"/proc/{one.stub.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{one.stub.pid}/fd")}
        # Only its own: the template's is closed.
        assert {name for name in descriptors if name.startswith("socket:")} == {one.stub.socket_link}
    for one in forked:
        one.stub.finalize()
        assert one.end() == (0, "hello /\n")


def test_stub_executes(root: Path, tmp_path: Path, template: Template) -> None:
    import textwrap

    path = supervisor.model(tmp_path, textwrap.dedent(IDENTITY))
    one = Forked(root, template)
    one.stub.hello()
    assert one.stub.initialize(path)["error"] == ""
    for size in (4, 100000):
        array_ = np.arange(size)
        np.testing.assert_array_equal(one.stub.execute(Request(1, [("IN", array_)])).responses[0]["OUT"], array_)
    one.stub.finalize()
    assert one.end()[0] == 0


def test_thread_ids_are_refreshed_after_a_fork(root: Path, tmp_path: Path, template: Template) -> None:
    path = supervisor.model(
        tmp_path,
        "import threading\nassert threading.main_thread().native_id == threading.get_native_id()\n"
        "class TritonPythonModel: pass\n",
    )
    one = Forked(root, template)
    one.stub.hello()
    assert one.stub.initialize(path)["error"] == ""
    assert Path(f"/proc/{one.stub.pid}/comm").read_text() == "triton_python_b\n"
    one.stub.finalize()
    assert one.end() == (0, "")


def test_the_end_is_the_interpreters_own(root: Path, tmp_path: Path, template: Template) -> None:
    path = supervisor.model(
        tmp_path,
        "import os\nfile = open(__file__ + '.out', 'w')\nfile.write('buffered')\nclass TritonPythonModel: pass\n",
    )
    one = Forked(root, template)
    one.stub.hello()
    one.stub.initialize(path)
    one.stub.finalize()
    assert one.end() == (0, "")
    assert path.with_name("model.py.out").read_text() == "buffered"


@pytest.mark.skipif(process.FREE_THREADED, reason="the interpreter ends normally")
def test_globals_are_removed_at_the_end(root: Path, tmp_path: Path, template: Template) -> None:
    """Globals are removed, private ones first.

    State shared with the template stays until C's exit.
    """
    (tmp_path / "c_handler.py").write_text(
        "import ctypes, os, sys\n"
        "@ctypes.CFUNCTYPE(None)\n"
        "def at_exit():\n"
        "    os.write(1, b'C handler, numpy lives: %d\\n' % hasattr(sys.modules.get('numpy'), 'ndarray'))\n"
    )
    path = supervisor.model(
        tmp_path,
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "import ctypes, json, numpy\n"
        "import c_handler\n"
        "numpy.kept = c_handler.at_exit\n"
        "ctypes.CDLL(None).on_exit(c_handler.at_exit, None)\n"
        "import sqlite3, colorsys\n"
        "class Named:\n"
        "    def __init__(self, name): self.name = name\n"
        "    def __del__(self, print=print): print(self.name, 'goes')\n"
        "public, _private = Named('public'), Named('private')\n"
        "colorsys.tied = Named('tied to a module')\n"
        "circle = Named('circle')\n"
        "circle.me = circle\n"
        "file = open(__file__ + '.out', 'w')\n"
        "file.write('buffered')\n"
        "numpy.kept_too = sys.modules[__name__]\n"
        "class TritonPythonModel: pass\n",
    )
    one = Forked(root, template)
    one.stub.hello()
    assert one.stub.initialize(path)["error"] == ""
    one.stub.finalize()
    code, printed = one.end()
    lines = printed.splitlines()
    assert code == 0 and lines[-1] == "C handler, numpy lives: 1", printed
    assert sorted(lines[:-1]) == ["circle goes", "private goes", "public goes", "tied to a module goes"]
    assert lines.index("private goes") < lines.index("public goes")
    assert path.with_name("model.py.out").read_text() == "buffered"


@pytest.mark.skipif(process.FREE_THREADED, reason="the interpreter ends normally")
def test_foreign_extensions_are_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extension modules loaded after the fork make the interpreter shut down normally."""
    import types
    from importlib.machinery import ExtensionFileLoader, ModuleSpec

    from pb_stub import ending

    assert not ending.is_short()  # no template
    monkeypatch.setattr(ending, "_shared", frozenset(sys.modules))
    assert ending.is_short()
    foreign = types.ModuleType("foreign")
    foreign.__spec__ = ModuleSpec("foreign", ExtensionFileLoader("foreign", "/somewhere/foreign.so"))
    monkeypatch.setitem(sys.modules, "foreign", foreign)
    assert not ending.is_short()


def test_random_numbers_differ(root: Path, tmp_path: Path, template: Template) -> None:
    path = supervisor.model(
        tmp_path,
        "import random\nimport numpy as np\nprint(random.random(), np.random.random())\nclass TritonPythonModel: pass\n",
    )
    printed = set()
    for _ in range(3):
        one = Forked(root, template)
        one.stub.hello()
        one.stub.initialize(path)
        one.stub.finalize()
        printed.update(one.end()[1].split())
    assert len(printed) == 6


def test_stubs_outlive_the_template(root: Path, tmp_path: Path, template: Template) -> None:
    path = supervisor.model(tmp_path, "class TritonPythonModel: pass\n")
    one = Forked(root, template)
    one.stub.hello()
    template.process.kill()
    template.process.wait()
    assert one.stub.initialize(path)["error"] == ""
    one.stub.finalize()
    assert one.end()[0] == 0


@pytest.mark.parametrize(
    ("request_", "count", "text"),
    [
        (_msgpack.pack({"instance": "m"}), 0, "0 descriptors came, want 8 to 10"),
        (_msgpack.pack({"instance": "m"}), 6, "6 descriptors came, want 8 to 10"),
        (_msgpack.pack({"instance": 5}), 7, "the request names no instance"),
        (_msgpack.pack([]), 8, "the request names no instance"),
        (b"\xc1", 8, "MessagePack code 0xc1 at 0 is not used here"),
        (
            _msgpack.pack({"instance": "m", "cwd": "/nowhere"}),
            8,
            "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'",
        ),
    ],
)
def test_bad_requests(template: Template, request_: bytes, count: int, text: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    assert template.ask(request_, [null] * count) == {"error": text}
    assert template.ask(request_, [null] * count) == {"error": text}
    os.close(null)
    assert len(os.listdir(f"/proc/{template.process.pid}/fd")) == 4


def test_end_of_the_socket(template: Template) -> None:
    template.socket.close()
    assert template.process.wait(20) == 0


def test_no_numpy(root: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('not here')")
    template = Template(root, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert template.hello == {"error": f"{sys.executable}: ImportError: not here"}
    assert template.process.wait(20) == 3
    template.close()
