"""The cost of clients' tensors in device memory: `make bench-gpu`. Compare ratios within one run.

A client registers device memory for an input and an output, and a model returns its input. The times are medians of
requests over one connection; sizes and models take turns. The bytes are checked.

on the device   the model accepts tensors on devices and returns its input from there
by the host     the model takes its input on the host
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "pyutils")]

import numpy as np  # noqa: E402  # only now found
from c_python_backend_utils import cuda  # noqa: E402
from ports import Port  # noqa: E402

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]
"""

TAKES = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: { string_value: "no" } }\n'

RETURNS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", r.inputs()[0])]) for r in requests]
"""

MODELS = {"on_device": TAKES, "on_host": ""}
SIZES = (4, 64 << 20)


class Region:
    """Memory of the first device, registered by the client under a name."""

    def __init__(self, client: Client, name: str, size: int) -> None:
        self.device = cuda.device(0)
        self.address = self.device.allocate(size)
        self.name = name
        self.size = size
        handle = base64.b64encode(self.device.handle_of(self.address)).decode()
        body = {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": size}
        client.ask(f"/v2/cudasharedmemory/region/{name}/register", body)

    def write(self, values: np.ndarray) -> None:
        self.device.copy_from_host(self.address, values.__array_interface__["data"][0], values.nbytes)

    def read(self) -> np.ndarray:
        values = np.empty(self.size // 4, np.float32)
        self.device.copy_to_host(values.__array_interface__["data"][0], self.address, values.nbytes)
        return values

    def range(self) -> dict[str, Any]:
        return {"shared_memory_region": self.name, "shared_memory_byte_size": self.size}


class Client:
    """One connection to a port of the server."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, path: str, body: Any = None) -> Any:
        text = b"" if body is None else json.dumps(body).encode()
        self.connection.request("POST", path, text, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        answer = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {answer.decode()}")
        return json.loads(answer) if answer else None

    def get(self, path: str) -> str:
        self.connection.request("GET", path)
        return self.connection.getresponse().read().decode()

    def infer(self, model: str, source: Region, target: Region) -> None:
        tensor = {"name": "IN", "datatype": "FP32", "shape": [source.size // 4], "parameters": source.range()}
        wanted = {"name": "OUT", "parameters": target.range()}
        self.ask(f"/v2/models/{model}/infer", {"inputs": [tensor], "outputs": [wanted]})


def measure(client: Client, warm: int, turns: int) -> dict[tuple[str, int], float]:
    """The median time of a request, in µs, by model and size."""
    pairs = {size: (Region(client, f"in{size}", size), Region(client, f"out{size}", size)) for size in SIZES}
    times: dict[tuple[str, int], list[float]] = {(model, size): [] for model in MODELS for size in SIZES}
    numbers = np.random.default_rng(1)
    for turn in range(warm + turns):
        for (model, size), taken in times.items():
            source, target = pairs[size]
            if turn in (0, warm):
                values = numbers.random(size // 4, np.float32)
                source.write(values)
            began = time.perf_counter()
            client.infer(model, source, target)
            if turn >= warm:
                taken.append(time.perf_counter() - began)
            if turn in (0, warm) and not np.array_equal(target.read(), values):
                raise RuntimeError(f"{model} answers with other bytes than it was sent, {size} of them")
    client.ask("/v2/cudasharedmemory/unregister")
    return {key: statistics.median(taken) * 1e6 for key, taken in times.items()}


def wait_ready(port: int) -> None:
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/v2/health/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError("the server is not ready within two minutes")


def main() -> None:
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "bin" / "nereid")
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as repository:
        for name, parameters in MODELS.items():
            (Path(repository) / name / "1").mkdir(parents=True)
            (Path(repository) / name / "config.pbtxt").write_text(CONFIG + parameters)
            (Path(repository) / name / "1" / "model.py").write_text(RETURNS)
        reserved = Port()
        port = reserved.number
        flags = ["--allow-grpc=false", "--allow-metrics=false", f"--http-port={port}", "--http-address=127.0.0.1"]
        python = "--backend-config=python,python-executable=" + sys.executable
        command = [binary, "--model-repository=" + repository, "--allow-client-shm=true", python, *flags]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            wait_ready(port)
            found = measure(Client(port), min(turns, 20), turns)
        finally:
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=60)
            reserved.close()
            if os.environ.get("VERBOSE"):
                sys.stdout.write(output.decode("utf-8", "replace"))
    for size, label in zip(SIZES, ("   4 B", "64 MiB")):
        device, host = found["on_device", size], found["on_host", size]
        print(f"client's region {label}   on the device {device:9.1f} µs   by the host {host:9.1f} µs")
    small, large = (found["on_device", size] for size in SIZES)
    host = found["on_host", SIZES[1]]
    print(f"64 MiB / 4 B of a client  {large / small:.2f}   device / host at 64 MiB {large / host:.3f}")


if __name__ == "__main__":
    main()
