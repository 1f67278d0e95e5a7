"""Device memory shared between processes: IPC handles, and allocations as file descriptors.

The same tests run with the fake driver and with a real one if present, so they define the fake.
"""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import fakecuda
import pytest
from c_python_backend_utils import cuda

SCRIPT = str(Path(__file__).resolve().parent / "sharing.py")

INVALID_VALUE = 1
INVALID_CONTEXT = 201

Start = Callable[..., "Process"]


class Process:
    """A process of sharing.py."""

    def __init__(self, environment: dict[str, str], *arguments: str, fds: tuple[int, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=fds,
        )

    def says(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended with {self._process.wait(60)}"
        said: dict[str, Any] = json.loads(line)
        return said

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(params=["fake", "real"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "fake":
        return fakecuda.environment(tmp_path / "counts")
    try:
        cuda.device(0)
    except cuda.CudaError as error:
        pytest.skip(f"no CUDA device: {error}")
    return {}


@pytest.fixture
def begin(environment: dict[str, str]) -> Iterator[Start]:
    started: list[Process] = []

    def begin(*arguments: str, fds: tuple[int, ...] = ()) -> Process:
        started.append(Process(environment, *arguments, fds=fds))
        return started[-1]

    yield begin
    for process in started:
        process.end()


class TestHandles:
    def test_are_opened_by_other_processes(self, begin: Start) -> None:
        made = begin("maker").says()
        assert made["export"] == 0
        assert made["own"] == INVALID_CONTEXT, "a process opened a handle of its own"
        assert begin("reader", made["handle"]).says() == {
            "open": 0, "values": [7], "close": 0, "again": INVALID_VALUE,
        }  # fmt: skip
        assert begin("reader", made["handle"]).says()["values"] == [9]

    def test_handles_of_a_part_are_handles_of_the_allocation(self, begin: Start) -> None:
        made = begin("maker").says()
        assert made["inner"] == 0
        assert begin("reader", made["inner_handle"]).says()["values"] == [7]

    def test_end_with_their_maker(self, begin: Start) -> None:
        maker = begin("maker")
        handle = maker.says()["handle"]
        maker.kill()
        assert begin("reader", handle).says()["open"] != 0

    def test_are_refused(self, begin: Start, environment: dict[str, str]) -> None:
        said = begin("others").says()
        assert said.pop("values") == [3]
        assert all(said.values()), said
        if environment:
            assert set(said.values()) == {INVALID_VALUE}


def receive(listener: socket.socket) -> int:
    """Return the descriptor that a process sends."""
    connection, _ = listener.accept()
    with connection:
        fds = array.array("i")
        _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(fds.itemsize))
        fds.frombytes(ancillary[0][2][: fds.itemsize])
        return fds[0]


class TestDescriptors:
    def test_keep_the_memory_when_its_maker_dies(self, begin: Start, tmp_path: Path) -> None:
        """This process, without CUDA, holds the descriptor meanwhile."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(tmp_path / "socket"))
            listener.listen()
            maker = begin("fd_maker", str(tmp_path / "socket"))
            fd = receive(listener)
        maker.says()
        maker.kill()
        for values in ([5], [6]):
            said = begin("fd_reader", str(fd), fds=(fd,)).says()
            assert (said["import"], said.get("values")) == (0, values)
            assert said["again"] != 0
        os.close(fd)

    def test_of_something_else_are_refused(self, begin: Start, tmp_path: Path) -> None:
        with open(tmp_path / "file", "w+b") as file:
            assert begin("fd_reader", str(file.fileno()), fds=(file.fileno(),)).says()["import"] != 0


class TestFakeAlone:
    """Cases that are undefined with a real driver, and that the fake reports."""

    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        return fakecuda.environment(tmp_path / "counts")

    def test_open_handles_are_counted(self, begin: Start, tmp_path: Path) -> None:
        handle = begin("maker").says()["handle"]
        keeper = begin("keeper", handle)
        assert keeper.says() == {"open": 0, "values": [7]}
        state = fakecuda.State(tmp_path / "counts")
        assert state.live("opened") == 1 and state.live("allocation") == 1
        keeper.end()
        begin("reader", handle).says()
        state = fakecuda.State(tmp_path / "counts")
        assert state.counts["cuIpcOpenMemHandle_v2"] == 3 and state.counts["double_close"] == 1
        assert state.counts["freed_while_open"] == 0

    def test_frees_of_open_allocations_are_counted(self, begin: Start, tmp_path: Path) -> None:
        maker = begin("free_maker")
        keeper = begin("keeper", maker.says()["handle"])
        assert keeper.says()["values"] == [7]
        maker.go_on()
        assert maker.says() == {"free": 0}
        assert fakecuda.State(tmp_path / "counts").counts["freed_while_open"] == 1
        killed = begin("free_maker")
        keeper = begin("keeper", killed.says()["handle"])
        keeper.says()
        keeper.kill()
        killed.go_on()
        killed.says()
        assert fakecuda.State(tmp_path / "counts").counts["freed_while_open"] == 1, "a process that is dead counts"
