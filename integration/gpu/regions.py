"""Tests clients' tensors in device memory with bin/nereid: `python3 integration/gpu/regions.py [BINARY]`.

Needs only numpy. This process, or another one that exits, has registered the memory of inputs and outputs. The
outputs are checked byte by byte.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from server import ROOT, Server, check, failed

from clients import CONFIG, MODELS, RETURNS, Client, Region  # isort: skip  # server.py adds its folder

N = 1 << 20

#: Registers memory, requests an output there if told to, and is killed.
ENDS = """
import os, signal, sys
sys.path.append(sys.argv[1])
from clients import Client, Region

client = Client(int(sys.argv[2]))
left = Region(client, "left", int(sys.argv[3]))
if sys.argv[4] == "used":
    client.infer("on_device", left, left)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Part:
    """A part of a region as a tensor."""

    def __init__(self, region, offset, size):
        self.region, self.offset, self.size = region, offset, size

    def range(self):
        return {**self.region.range(), "shared_memory_offset": self.offset, "shared_memory_byte_size": self.size}


def stories(port):
    client = Client(port)
    numbers = np.random.default_rng(1).random(N, np.float32)
    source, target = Region(client, "source", 4 * N), Region(client, "target", 4 * N)
    for model in MODELS:
        for turn, n in enumerate((N, 1, 1000, N)):
            source.write(numbers + turn)
            before = target.read()
            client.infer(model, Part(source, 0, 4 * n), Part(target, 0, 4 * n))
            found = target.read()
            check("%s, %d values" % (model, n), (found[:n] == numbers[:n] + turn).all() and (found[n:] == before[n:]).all())
        source.write(numbers)
        for by in (0, 4, 4096, 1 << 19):
            half = 2 * N  # bytes
            client.infer(model, Part(source, 0, half), Part(source, by, half))
            found = source.read()
            check("%s, an output %d bytes behind its input" % (model, by), (found[by // 4 :][: N // 2] == numbers[: N // 2]).all())
            source.write(numbers)

    for how in ("unused", "used"):
        command = [sys.executable, "-c", ENDS, str(ROOT / "bench" / "gpu"), str(port), str(4 * N), how]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120)
        check("a client is killed, its memory %s" % how, ended.returncode == -9, ended.stderr)
        left = Region.__new__(Region)
        left.name, left.size = "left", 4 * N
        client.infer("on_device", source, left)
        client.infer("on_host", left, target)
        check("its memory is there, %s" % how, (target.read() == numbers).all())
        client.ask("/v2/cudasharedmemory/region/left/unregister")
    client.ask("/v2/cudasharedmemory/unregister")
    check("nothing is registered", json.loads(client.get("/v2/cudasharedmemory/status")) == [])


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "bin" / "nereid")
    with tempfile.TemporaryDirectory() as repository:
        for name, parameters in MODELS.items():
            folder = Path(repository, name, "1")
            folder.mkdir(parents=True)
            (folder / "model.py").write_text(RETURNS)
            (folder.parent / "config.pbtxt").write_text(CONFIG + parameters)
        server = Server(binary, repository, ["--allow-client-shm=true"])
        try:
            stories(server.http)
        finally:
            server.end()
    if failed:
        print(server.log)
        sys.exit(1)


if __name__ == "__main__":
    main()
