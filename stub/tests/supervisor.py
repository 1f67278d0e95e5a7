"""A supervisor for tests: starts a real stub with shared files, and speaks docs/protocol.md."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Sequence

from frames import KINDS, NAMES, Executed, Frame, InDevice, InRegion, Lent, Output, Request, Response, flatten, pad8
from pb_stub import _msgpack
from ring import Ring, store

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent, HERE.parent.parent / "pyutils"

MAX_BODY = 32768  # a longer one is spilled
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4  # in fcntl since Python 3.9


def distribution(directory: Path) -> Path:
    """Copy the Python files to the layout that the supervisor unpacks."""
    stub, pyutils = SOURCES
    ignore = shutil.ignore_patterns("__pycache__", "tests")
    for source in (stub / "pb_stub", stub / "triton_python_backend_stub", stub / "nereid_template"):
        shutil.copytree(source, directory / source.name, ignore=ignore)
    shutil.copytree(pyutils / "c_python_backend_utils", directory / "c_python_backend_utils", ignore=ignore)
    shutil.copy(pyutils / "triton_python_backend_utils.py", directory)
    return directory


def interpreters() -> list[str]:
    """Return this interpreter, and those in NEREID_PYTHONS, separated by colons."""
    found = [sys.executable]
    for path in os.environ.get("NEREID_PYTHONS", "").split(":"):
        if path and path not in found:
            found.append(path)
    return found


class Supervisor:
    """Starts one stub, and records loans in both directions."""

    def __init__(
        self,
        root: Path,
        python: str = sys.executable,
        instance: str = "m_0_0",
        requests_size: int = 1 << 35,
        up_size: int = 1 << 32,
        version: int = 2,
        environment: dict[str, str] | None = None,
        inherit: bool = True,
        cwd: Path | None = None,
        spawn: Callable[[list[int], int], Any] | None = None,  # with the descriptors and that of standard error
        stderr: Any = None,
    ) -> None:
        self.instance = instance
        self.life = 7
        self.writable: dict[int, tuple[int, int]] = {}  # files of regions, owned by the test, and their start
        down = os.memfd_create("down", os.MFD_CLOEXEC)
        os.ftruncate(down, 0x30000)
        self.up_fd = os.memfd_create("up", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.up_fd, up_size)
        fcntl.fcntl(self.up_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
        self.requests_fd = os.memfd_create("requests", os.MFD_CLOEXEC)
        os.ftruncate(self.requests_fd, requests_size)
        down_ro = os.open(f"/proc/self/fd/{down}", os.O_RDONLY)
        requests_ro = os.open(f"/proc/self/fd/{self.requests_fd}", os.O_RDONLY)
        bell_in, self.bell_out = os.pipe()
        self.bell_in, bell_out = os.pipe()
        lifeline, self.lifeline = os.pipe()
        os.set_blocking(self.bell_in, False)
        self.down = mmap.mmap(down, 0x30000)
        self.up = mmap.mmap(self.up_fd, up_size, prot=mmap.PROT_READ)
        self.requests = mmap.mmap(self.requests_fd, requests_size)
        struct.pack_into("<III", self.down, 0, 0x3144524E, version, self.life)
        self.ring = Ring(self.down, self.up)
        self.reader = Ring(self.down, self.up)
        self.rung = 0

        self.socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [down_ro, self.up_fd, requests_ro, bell_in, bell_out, lifeline, far.fileno()]
        self.error_file = tempfile.TemporaryFile()  # noqa: SIM115  # close closes it
        self.process: Any
        if spawn is None:
            command = [python, "-u", str(root / "triton_python_backend_stub"), instance]
            self.process = subprocess.Popen(
                [*command, "--fds=" + ",".join(map(str, fds))],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stderr=stderr or self.error_file,
                env={**(os.environ if inherit else {}), **(environment or {})},
                cwd=cwd,
            )
        else:
            self.process = spawn(fds, self.error_file.fileno())
        self.pid = self.process.pid
        for fd in (down, down_ro, requests_ro, bell_in, bell_out, lifeline):
            os.close(fd)
        self.socket_link = f"socket:[{os.fstat(far.fileno()).st_ino}]"  # the target of the stub's end
        far.close()
        self.pidfd = pidfd_open(self.pid)

        self.names: list[str] = []  # up table
        self.sent_names: list[str] = []  # down table
        self.batch = 0
        self.execute_flags = 0
        self.next_block = 0
        self.loans: dict[int, tuple[int, int]] = {}  # ticket: offset, size
        self.next_ticket = 1
        self.returned = 0
        self.lent: dict[int, Lent] = {}
        self.unlent: list[int] = []
        self.logs: list[dict[str, Any]] = []
        self.released: list[int] = []
        self.responses: list[Response] = []
        self.imported: list[list[str]] = []  # by report
        self.kept: Counter[int] = Counter()  # unreturned tickets of up, with the number of times they were named

    # Frames.

    def send(self, kind: str, ident: int = 0, body: bytes = b"", flags: int = 0) -> None:
        if len(body) > MAX_BODY:
            offset, ticket = self.lend(body)
            body = struct.pack("<HBBIQQQII", 0, 2, 0, 1, offset, len(body), ticket, 0, 0)
            flags |= 1
        self.ring.send(struct.pack("<IHHIIQ", 24 + len(body), KINDS[kind], flags, self.life, 0, ident) + body)
        self.ring_bell()

    def ring_bell(self) -> None:
        (asleep,) = struct.unpack_from("<I", self.up, 0x080)
        if asleep & 1 and asleep != self.rung:
            self.rung = asleep
            os.write(self.bell_out, b"\0")

    def receive(self, timeout: float = 60.0) -> Frame:
        """Return the next frame.

        LOG, RELEASED, LEND, UNLEND and imported files are only recorded.
        """
        deadline = time.monotonic() + timeout
        while True:
            raw = self.reader.receive()
            if raw is None:
                self.wait(deadline)
                continue
            frame = self.frame(raw)
            if frame.kind == "LOG":
                self.logs.append(frame.fields())
            elif frame.kind == "RELEASED":
                tickets = struct.unpack(f"<{len(frame.raw[24:]) // 8}Q", frame.raw[24:])
                self.released.extend(tickets)
                self.end_loans(tickets)
            elif frame.kind == "LEND":
                device, reserved, size = struct.unpack_from("<IIQ", frame.raw, 24)
                assert reserved == 0 and len(frame.raw) == 24 + 96 and frame.id > max(self.lent, default=0)
                self.lent[frame.id] = Lent(device, size, frame.raw[40:56], frame.raw[56:])
            elif frame.kind == "UNLEND":
                assert frame.id in self.lent and frame.id not in self.unlent and len(frame.raw) == 24
                self.unlent.append(frame.id)
            elif frame.kind == "CALL" and frame.fields()["operation"] == "imported":
                assert frame.id == 0
                self.imported.append(frame.fields()["paths"])
            elif frame.kind == "NAME":
                assert frame.id == len(self.names)
                self.names.append(frame.raw[24:].decode())
            else:
                return frame

    def wait(self, deadline: float) -> None:
        """Sleep according to the protocol, until the bell rings or the stub exits."""
        (count,) = struct.unpack_from("<I", self.down, 0x080)
        store(self.down, 0x080, "<I", count + 1)
        os.sched_yield()
        try:
            if self.reader.word(self.up, 0x040) != self.reader.at:
                return
            left = deadline - time.monotonic()
            poller = select.poll()
            poller.register(self.bell_in, select.POLLIN)
            poller.register(self.pidfd, select.POLLIN)
            ready = dict(poller.poll(max(0, left * 1000)))
            if not ready:
                raise TimeoutError(f"no frame; stderr: {self.stderr()!r}")
            if self.bell_in in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.bell_in, 4096)
            if self.pidfd in ready and self.reader.word(self.up, 0x040) == self.reader.at:
                raise StubDied(f"stub has ended; stderr: {self.stderr()!r}")
        finally:
            store(self.down, 0x080, "<I", count + 2)

    def frame(self, raw: bytes) -> Frame:
        size, kind, flags, life, reserved, ident = struct.unpack_from("<IHHIIQ", raw)
        assert size == len(raw) and life == self.life and reserved == 0, "frame header"
        if flags & 1:
            _, data_type, rank, region, offset, count, ticket, _, _ = struct.unpack_from("<HBBIQQQII", raw, 24)
            assert (data_type, rank, region) == (2, 0, 2), "descriptor of a spilled body"
            raw = raw[:24] + self.up[offset : offset + count]
            self.kept[ticket] += 1
            self.give_back(ticket)
        return Frame(NAMES[kind], ident, raw)

    # The conversation.

    def hello(self) -> dict[str, Any]:
        frame = self.receive()
        assert frame.kind == "HELLO", frame
        return {**frame.fields(), "pid": frame.id}

    def initialize(self, path: Path, /, **changes: Any) -> dict[str, Any]:
        """Send INITIALIZE for `<model>/<version>/<file>.py`; returns the content of INITIALIZED."""
        version, model = path.parent, path.parent.parent
        inputs, outputs = changes.pop("inputs", ["IN"]), changes.pop("outputs", ["OUT"])
        args = {
            "model_config": changes.pop("config", "{}"),
            "model_instance_kind": "CPU",
            "model_instance_name": self.instance,
            "model_instance_device_id": "0",
            "model_repository": str(model),
            "model_version": version.name,
            "model_name": model.name,
        }
        self.names = [*inputs, *outputs]
        self.sent_names = [*self.names]
        body = {
            "args": args,
            "names": self.names,
            "inputs": len(inputs),
            "outputs": len(outputs),
            "decoupled": False,
            **self.settings(path),
            "window_responses": 8,
            "window_bytes": 1 << 20,
            "async_overlap": 1,
            **changes,
        }
        self.send("INITIALIZE", 0, _msgpack.pack(body))
        frame = self.receive(60)
        assert frame.kind == "INITIALIZED", frame
        return frame.fields()

    def complete(self, path: Path, config: str, /, **changes: Any) -> dict[str, Any]:
        """Send AUTO_COMPLETE for a model file; returns the content of COMPLETED."""
        body = {"config": config, "model": path.parent.parent.name, **self.settings(path), **changes}
        self.send("AUTO_COMPLETE", 0, _msgpack.pack(body))
        frame = self.receive(60)
        assert frame.kind == "COMPLETED", frame
        return frame.fields()

    def ask(self, probe: int) -> None:
        """Send READY?; `answer` receives the answer."""
        self.send("READY?", probe)

    def answer(self, probe: int, timeout: float = 60.0) -> tuple[bool, str]:
        frame = self.receive(timeout)
        assert (frame.kind, frame.id) == ("READY", probe), frame
        fields = frame.fields()
        return fields["ready"], fields["error"]

    @staticmethod
    def settings(path: Path) -> dict[str, Any]:
        """Return the fields of AUTO_COMPLETE and INITIALIZE for a model file."""
        version, model = path.parent, path.parent.parent
        return {
            "path": str(path),
            "module": f"{version.name}.{path.stem}",
            "search": [str(version), str(model)],
            "directory": str(version),
            "log": {"info": True, "warning": True, "error": True, "verbose": 0},
            "spin_us": 50,
            "default_bytes": 1 << 20,
            "growth_bytes": 1 << 20,
            "max_bytes": 1 << 30,
        }

    def execute(self, *requests: Request, timeout: float = 60.0) -> Executed:
        self.start_batch(*requests)
        return self.finish_batch(timeout)

    def start_batch(self, *requests: Request) -> None:
        self.batch += 1
        self.send("EXECUTE", self.batch, self.execute_body(requests))

    def finish_batch(self, timeout: float = 60.0) -> Executed:
        """Wait for EXECUTED; earlier frames go to `responses`."""
        frame = self.receive(timeout)
        while frame.kind == "RESPONSE":
            self.responses.append(self.response(frame))
            frame = self.receive(timeout)
        assert frame.kind == "EXECUTED" and frame.id == self.batch, frame
        return self.executed(frame)

    def finalize(self) -> dict[str, Any]:
        self.send("FINALIZE")
        frame = self.receive()
        assert frame.kind == "FINALIZED", frame
        return frame.fields()

    # Regions of clients.

    def map_region(
        self, number: int, fd: int, size: int, offset: int = 0, hand: bool = True, writable: bool = False
    ) -> int:
        """Make the stub map a region; returns the status in its answer."""
        if hand:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("<i", fd))]
            self.socket.sendmsg([struct.pack("<I", number)], rights)
        self.send("MAP", number, struct.pack("<QQQ", offset, size, writable))
        if writable:
            self.writable[number] = fd, offset
        return self.mapped(number)

    def unmap_region(self, number: int) -> int:
        self.send("UNMAP", number)
        return self.mapped(number)

    def mapped(self, number: int) -> int:
        frame = self.receive()
        assert (frame.kind, frame.id) == ("MAPPED", number), frame
        status, reserved = struct.unpack("<II", frame.raw[24:])
        assert reserved == 0
        return int(status)

    # Memory of devices.

    def announce(self, number: int, lent: Lent) -> None:
        """Send ALLOCATION."""
        self.send("ALLOCATION", number, struct.pack("<IIQ", lent.device, 0, lent.size) + lent.uuid + lent.handle)

    # Blocks of requests.

    def lend(self, data: bytes, offset: int | None = None) -> tuple[int, int]:
        """Put bytes into a block and lend it: offset and ticket."""
        if offset is None:
            offset = self.next_block
            self.next_block += (len(data) + 4095) // 4096 * 4096
        self.requests[offset : offset + len(data)] = data
        ticket = self.next_ticket | 5 << 32
        self.next_ticket += 1
        self.loans[ticket] = offset, len(data)
        return offset, ticket

    def end_loans(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            del self.loans[ticket]  # KeyError: unknown, or returned twice

    def give_back(self, ticket: int) -> None:
        """Put a ticket of the arena into the return ring."""
        store(self.down, 0x1000 + self.returned % 4096 * 8, "<Q", ticket)
        self.returned += 1
        store(self.down, 0x100, "<Q", self.returned)
        self.kept[ticket] -= 1

    # Coding.

    def name_index(self, name: str) -> int:
        if name not in self.sent_names:
            self.send("NAME", len(self.sent_names), name.encode())
            self.sent_names.append(name)
        return self.sent_names.index(name)

    def execute_body(self, requests: Sequence[Request]) -> bytes:
        heads: list[bytearray] = []
        inline: list[tuple[int, int, bytes]] = []  # index of the header, its position for the offset, the bytes
        for number, request in enumerate(requests):
            text = request.correlation if isinstance(request.correlation, str) else None
            strings = [s.encode() for s in (request.id, request.parameters, text or "", request.trace)]
            head = bytearray(
                struct.pack(
                    "<QQQIHHIIIIIIQ",
                    request.handle,
                    0 if text is not None else request.correlation,
                    request.timeout,
                    request.flags,
                    len(request.inputs),
                    0xFFFF if request.outputs is None else len(request.outputs),
                    *map(len, strings),
                    text is not None,
                    len(request.places)
                    + len(request.there)
                    + (0 if request.stays is None else max(1, len(request.stays))),
                    7,  # a priority, which models do not see
                )
            )
            for name, value in request.inputs:
                if isinstance(value, InRegion):
                    ticket = self.next_ticket | 5 << 32
                    self.next_ticket += 1
                    self.loans[ticket] = value.offset, 0  # none of it is passed on
                    head += struct.pack(
                        "<HBBIQQQII", self.name_index(name), value.type, len(value.shape), 3, value.offset, value.size,
                        ticket, 0, value.number,
                    )  # fmt: skip
                    head += struct.pack(f"<{len(value.shape)}q", *value.shape)
                    continue
                if isinstance(value, InDevice):
                    ticket = self.next_ticket | 5 << 32
                    self.next_ticket += 1
                    self.loans[ticket] = 0, 0
                    head += struct.pack(
                        "<HBBIQQQII", self.name_index(name), value.type, len(value.shape), 5 if value.own else 4,
                        value.offset, value.size, ticket, 2 if value.client else value.sole, value.number,
                    )  # fmt: skip
                    head += struct.pack(f"<{len(value.shape)}q", *value.shape)
                    continue
                data_type, shape, data = flatten(value)
                element = 0
                if len(data) <= 4096:
                    inline.append((number, len(head) + 8, data))
                    region = offset = ticket = 0
                else:
                    region = 1
                    offset, ticket = self.lend(data)
                head += struct.pack(
                    "<HBBIQQQII", self.name_index(name), data_type, len(shape), region, offset, len(data), ticket,
                    element, 0,
                )  # fmt: skip
                head += struct.pack(f"<{len(shape)}q", *shape)
            if request.outputs is not None:
                indices = [self.name_index(name) for name in request.outputs]
                head += pad8(struct.pack(f"<{len(indices)}H", *indices))
            for kind, places in ((0, request.places), (2, request.there)):
                for name, region_number, at, room in places:
                    head += struct.pack("<HHIQQ", self.name_index(name), kind, region_number, at, room)
            if request.stays is not None:
                for index in map(self.name_index, request.stays) if request.stays else [0xFFFF]:
                    head += struct.pack("<HHIQQ", index, 1, 0, 0, 0)
            head += pad8(b"".join(strings))
            heads.append(head)
        position = 32 + sum(map(len, heads))
        tail = bytearray()
        for number, at, data in inline:
            tail += bytes(-(position + len(tail)) % 16)
            struct.pack_into("<Q", heads[number], at, position + len(tail))
            tail += data
        return struct.pack("<II", len(requests), self.execute_flags) + b"".join(map(bytes, heads)) + bytes(tail)

    def executed(self, frame: Frame) -> Executed:
        """Decode EXECUTED, then end the loans that it returns."""
        raw = frame.raw
        count, status, start, end, ticket_count, text_size = struct.unpack_from("<IIQQII", raw, 24)
        tickets = list(struct.unpack_from(f"<{ticket_count}Q", raw, 56))
        at = 56 + 8 * ticket_count
        text = raw[at : at + text_size].decode()
        at += text_size + -text_size % 8
        result = Executed(frame.id, status, start, end, text, tickets)
        for _ in range(count):
            response, at = self.response_at(raw, at)
            result.responses.append(response)
        self.end_loans(tickets)
        return result

    def response(self, frame: Frame) -> Response:
        """Decode RESPONSE."""
        assert frame.kind == "RESPONSE", frame
        count, reserved = struct.unpack_from("<II", frame.raw, 24)
        tickets = list(struct.unpack_from(f"<{count}Q", frame.raw, 32))
        response, _ = self.response_at(frame.raw, 32 + 8 * count)
        assert reserved == 0 and response.handle == frame.id
        self.end_loans(tickets)
        return response

    def response_at(self, raw: bytes, at: int) -> tuple[Response, int]:
        """Decode one response; also returns its end."""
        handle, flags, outputs, code, parameter_size, error_size, reserved = struct.unpack_from("<QIHHIIQ", raw, at)
        assert reserved == 0
        at += 32
        response = Response(handle, flags, code, "", "", [])
        for _ in range(outputs):
            name, data_type, rank, region, offset, size, ticket, element, number = struct.unpack_from(
                "<HBBIQQQII", raw, at
            )
            assert (number != 0) == (region in (3, 4, 6))
            shape = struct.unpack_from(f"<{rank}q", raw, at + 40)
            at += 40 + 8 * rank
            if region == 4:
                assert number in self.lent and number not in self.unlent
                assert ticket >> 31 & 1 and offset + size <= self.lent[number].size
                self.kept[ticket] += 1
                data = struct.pack("<Q", offset)
            elif region == 6:
                assert ticket == 0
                data = struct.pack("<Q", offset)
            else:
                data = self.bytes_of(raw, region, offset, size, ticket or number)
            response.outputs.append(Output(self.names[name], data_type, shape, region, data, ticket, element, number))
        response.parameters = raw[at : at + parameter_size].decode()
        response.error = raw[at + parameter_size : at + parameter_size + error_size].decode()
        at += parameter_size + error_size
        return response, at + -at % 8

    def next_response(self, timeout: float = 60.0) -> Response:
        """The next RESPONSE."""
        return self.response(self.receive(timeout))

    def credit(self, handle: int, responses: int, size: int) -> None:
        self.send("CREDIT", handle, struct.pack("<IIQ", responses, 0, size))

    def bytes_of(self, raw: bytes, region: int, offset: int, size: int, ticket: int) -> bytes:
        if region == 0:
            assert offset % 16 == 0 and ticket == 0 and offset + size <= len(raw)
            return raw[offset : offset + size]
        if region == 1:
            begin, length = self.loans[ticket]
            assert begin <= offset and offset + size <= begin + length
            return self.requests[offset : offset + size]
        if region == 3:
            fd, start = self.writable[ticket]
            return os.pread(fd, size, start + offset)
        assert region == 2 and offset >= 0x30000
        self.kept[ticket] += 1
        return self.up[offset : offset + size]

    # The end.

    def stderr(self) -> str:
        self.error_file.seek(0)
        return self.error_file.read().decode("utf-8", "replace")

    def wait_exit(self, timeout: float = 60.0) -> int:
        """Wait until the stub exits and return its code, negative for a signal."""
        return int(self.process.wait(timeout))

    def close(self) -> None:
        """Release everything; the stub's group ends with its lifeline."""
        for fd in (self.lifeline, self.bell_out, self.bell_in):
            if fd >= 0:
                os.close(fd)
        self.lifeline = self.bell_out = self.bell_in = -1
        self.process.wait(20)
        for fd in (self.up_fd, self.requests_fd, self.pidfd):
            os.close(fd)
        self.socket.close()
        self.error_file.close()
        for memory in (self.down, self.up, self.requests):
            memory.close()

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StubDied(Exception):
    pass


def pidfd_open(pid: int) -> int:
    if hasattr(os, "pidfd_open"):
        return int(os.pidfd_open(pid))
    import ctypes

    fd = ctypes.CDLL(None, use_errno=True).syscall(434, pid, 0)
    assert fd >= 0, "pidfd_open"
    return int(fd)


def model(directory: Path, source: str, name: str = "m", version: str = "1", file: str = "model.py") -> Path:
    """Write a model into a repository and return its file."""
    path = directory / name / version / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


def parameters(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value
