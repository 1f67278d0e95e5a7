"""Fixtures: the unpacked distribution, and stubs of a model."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import supervisor
from supervisor import Supervisor

Start = Callable[..., Supervisor]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python files as the supervisor unpacks them."""
    return supervisor.distribution(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts stubs: `start(source, **settings)` has its model initialized and wants that to go well."""
    started: list[Supervisor] = []

    def begin(source: str, *, environment: dict[str, str] | None = None, **settings: Any) -> Supervisor:
        path = supervisor.model(tmp_path, textwrap.dedent(source), name=f"m{len(started)}")
        stub = Supervisor(root, environment=environment)
        started.append(stub)
        stub.hello()
        answer = stub.initialize(path, **settings)
        assert answer["error"] == "", answer["error"]
        return stub

    yield begin
    for stub in started:
        stub.close()


@pytest.fixture
def fail(root: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[str, Supervisor]]]:
    """Starts stubs whose model does not come up: returns the text that the supervisor gets."""
    started: list[Supervisor] = []

    def begin(source: str, **settings: Any) -> tuple[str, Supervisor]:
        path = supervisor.model(tmp_path, textwrap.dedent(source), name=f"f{len(started)}")
        stub = Supervisor(root)
        started.append(stub)
        stub.hello()
        answer = stub.initialize(path, **settings)
        assert answer["error"] != ""
        assert stub.wait_exit() == 1
        return answer["error"], stub

    yield begin
    for stub in started:
        stub.close()
