"""The fake libcuda.so.1 of internal/testkit/fakecuda, for tests in Python.

NEREID_FAKECUDA names the folder of the built library. Without it, the fake is built here, which
needs a C compiler.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest
from c_python_backend_utils import cuda

SOURCES = Path(__file__).resolve().parents[2] / "internal" / "testkit" / "fakecuda" / "driver"

#: Kinds of live things, as in fake.h.
KINDS = {
    "allocation": 1,
    "host": 2,
    "managed": 3,
    "async": 4,
    "stream": 5,
    "event": 6,
    "context": 7,
    "opened": 8,
    "handle": 9,
    "reservation": 10,
    "mapping": 11,
    "registered": 12,
}

_built: list[Path] = []


def directory() -> Path:
    """Return the folder of the fake; skip the test if it cannot be built."""
    given = os.environ.get("NEREID_FAKECUDA")
    if given:
        return Path(given)
    if not _built:
        compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler: the fake CUDA driver cannot be built")
        made = Path(tempfile.mkdtemp(prefix="fakecuda-"))
        atexit.register(shutil.rmtree, made, True)
        sources = sorted(map(str, SOURCES.glob("*.c")))
        options = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(
            [compiler, *options, "-o", str(made / "libcuda.so.1"), *sources, "-lpthread"], check=True, timeout=120
        )
        _built.append(made)
    return _built[0]


class Fake:
    """The fake in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))

    def fail(self, faults: str = "") -> None:
        """Make calls fail: `NAME:N=CODE,...`; counting starts now."""
        self.library.fakecuda_fail(faults.encode())

    def count(self, name: str) -> int:
        """Return the number of calls of a function, or the value of a tally."""
        value = ctypes.c_uint64()
        assert self.library.fakecuda_state(name.encode(), ctypes.byref(value)), name
        return value.value

    def live(self, kind: str) -> int:
        """Return the number of this process's objects of a kind."""
        return int(self.library.fakecuda_live(KINDS[kind]))

    def present(self, there: bool) -> None:
        self.library.fakecuda_present(int(there))


def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """The body of a fixture: makes the fake the driver of this process until the test ends."""
    fake = Fake(directory() / "libcuda.so.1")
    fake.fail()
    fake.present(True)
    monkeypatch.setattr(cuda, "_LIBRARY", str(fake.path))
    monkeypatch.setattr(cuda, "_driver", None)
    mistakes = ("double_free", "double_close", "freed_while_open", "wrong_context", "without_context", "out_of_bounds")
    before = {name: fake.count(name) for name in mistakes}
    yield fake
    gc.collect()  # objects kept by exceptions would otherwise be freed after their device
    assert {name: fake.count(name) for name in mistakes} == before
    fake.fail()
    for device in range(2):
        fake.library.cuDevicePrimaryCtxReset_v2(device)
    fake.present(False)


class State:
    """The counts of the processes whose FAKECUDA_STATE names this file."""

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes() if path.exists() else b""
        self.counts: dict[str, int] = {}
        #: Live objects: kind, pid, number, device, bytes; for opened ones, also their maker's pid
        #: and number.
        self.things: list[tuple[int, ...]] = []
        if not raw.startswith(b"fakecuda"):
            return
        functions, tallies, things = struct.unpack_from("<3Q", raw, 8)
        for name, number in struct.iter_unpack("<56sQ", raw[32 : 32 + 64 * (functions + tallies)]):
            self.counts[name.rstrip(b"\0").decode()] = number
        at = 32 + 64 * (functions + tallies)
        self.things = [thing for thing in struct.iter_unpack("<7Q", raw[at : at + 56 * things]) if thing[0]]

    def live(self, kind: str) -> int:
        """Return the number of objects of a kind in running processes."""
        return sum(thing[0] == KINDS[kind] and os.path.exists(f"/proc/{thing[1]}") for thing in self.things)


def environment(state: Path, **settings: Any) -> dict[str, str]:
    """Return an environment in which a process finds the fake."""
    search = [str(directory()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        "LD_LIBRARY_PATH": ":".join(search),
        "FAKECUDA_STATE": str(state),
        **{f"FAKECUDA_{name.upper()}": str(value) for name, value in settings.items()},
    }
