"""Fixtures: the unpacked distribution, stubs of a model, and helpers of device tests."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any, Callable, Iterator

import fakecuda
import pytest
import supervisor
from devicemodels import HEAD, MISTAKES, Maker
from fakecuda import State
from pb_stub.outgoing import accelerate
from supervisor import Supervisor
from template import Fork, Template

# Also for the tests of pyutils, if they run in the same process.
accelerate()

Start = Callable[..., Supervisor]
Begin = Callable[..., Supervisor]
Counts = Callable[[], State]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python files as the supervisor unpacks them."""
    return supervisor.distribution(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def fork(root: Path) -> Iterator[Callable[[list[int], int], Fork]]:
    """Forks stubs from the template of most tests, ten times faster than starting them."""
    made = Template(root)
    yield lambda fds, errors: made.fork("m_0_0", fds, 1, errors, os.getcwd())
    made.close()


@pytest.fixture
def start(root: Path, fork: Callable[[list[int], int], Fork], tmp_path: Path) -> Iterator[Start]:
    """Starts stubs: `start(source, **settings)` initializes the model and requires success.

    With an environment, stubs are started; otherwise a template forks them, as in the server.
    """
    started: list[Supervisor] = []

    def begin(source: str, *, environment: dict[str, str] | None = None, **settings: Any) -> Supervisor:
        path = supervisor.model(tmp_path, textwrap.dedent(source), name=f"m{len(started)}")
        stub = Supervisor(root, environment=environment, spawn=fork if environment is None else None)
        started.append(stub)
        stub.hello()
        answer = stub.initialize(path, **settings)
        assert answer["error"] == "", answer["error"]
        return stub

    yield begin
    for stub in started:
        stub.close()


@pytest.fixture
def fail(
    root: Path, fork: Callable[[list[int], int], Fork], tmp_path: Path
) -> Iterator[Callable[..., tuple[str, Supervisor]]]:
    """Starts stubs whose model fails to initialize; returns the supervisor's error text."""
    started: list[Supervisor] = []

    def begin(source: str, **settings: Any) -> tuple[str, Supervisor]:
        path = supervisor.model(tmp_path, textwrap.dedent(source), name=f"f{len(started)}")
        stub = Supervisor(root, spawn=fork)
        started.append(stub)
        stub.hello()
        answer = stub.initialize(path, **settings)
        assert answer["error"] != ""
        assert stub.wait_exit() == 1
        return answer["error"], stub

    yield begin
    for stub in started:
        stub.close()


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    """Reads the counts of the fake driver."""
    return lambda: State(tmp_path / "counts")


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Iterator[Begin]:
    """Starts a stub with the fake driver; HEAD is put before its model's source."""

    def begin(source: str, fail: str = "", memory: int = 1 << 30, **settings: Any) -> Supervisor:
        environment = fakecuda.environment(tmp_path / "counts", fail=fail, memory=memory)
        return start(HEAD + source, environment=environment, **settings)

    yield begin
    state = State(tmp_path / "counts")
    assert {name: state.counts.get(name, 0) for name in MISTAKES} == dict.fromkeys(MISTAKES, 0)


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[Maker]:
    """A process that has lent memory of the first device."""
    made = Maker(tmp_path / "counts")
    yield made
    made.process.communicate()
