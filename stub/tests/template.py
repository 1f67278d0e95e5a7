"""A template for tests, and the stubs that it forks."""

from __future__ import annotations

import array
import ctypes
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from pb_stub import _msgpack
from supervisor import pidfd_open

PR_SET_CHILD_SUBREAPER = 36


class Template:
    """One template process, and this side of its socket."""

    def __init__(self, root: Path, **options: Any) -> None:
        # The forks become children of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        fd = theirs.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(root / "nereid_template"), f"--fd={fd}", " " * 512],
            pass_fds=[fd],
            stderr=subprocess.PIPE,
            **options,
        )
        theirs.close()
        self.hello = self.receive()

    def receive(self) -> dict[str, Any]:
        value: dict[str, Any] = _msgpack.unpack(self.socket.recv(65536))
        return value

    def ask(self, request: bytes, fds: list[int]) -> dict[str, Any]:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([request], rights)
        return self.receive()

    def fork(self, instance: str, fds: list[int], output: int, errors: int, cwd: str = "/") -> Fork:
        answer = self.ask(_msgpack.pack({"instance": instance, "cwd": cwd}), [*fds, output, errors])
        assert "pid" in answer, answer
        return Fork(int(answer["pid"]))

    def close(self) -> None:
        self.socket.close()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.process.wait(20)


class Fork:
    """A stub forked by a template, with the interface of subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            fd = pidfd_open(self.pid)
            try:
                if not select.select([fd], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("stub", timeout)
            finally:
                os.close(fd)
            _, status = os.waitpid(self.pid, 0)
            self.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.returncode
