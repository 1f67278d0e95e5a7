"""The cost of calls between models whose tensors stay on the device: `make bench-gpu`. Compare ratios within one run.

A model repeatedly calls another one, which returns its input. The times are medians of `exec`.

on the device   torch tensors that the other model accepts and returns on the device
by the host     the same tensor, copied to the host before the call and back afterwards
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from ports import Port

ROOT = Path(__file__).resolve().parents[2]

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""

TAKES = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: { string_value: "no" } }\n'

RETURNS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", r.inputs()[0])]) for r in requests]
"""

CALLS = """
import statistics, time
import numpy as np
import torch
import triton_python_backend_utils as pb_utils

def call(model, tensor):
    inputs = [pb_utils.Tensor.from_dlpack("IN", tensor)]
    request = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=inputs)
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return response.output_tensors()[0]

def median(call, turns=60):
    for _ in range(20):
        call()
    times = []
    for _ in range(turns):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6

class TritonPythonModel:
    def execute(self, requests):
        found = []
        for size in (1, 16 << 20):
            x = torch.rand(size, device="cuda")
            y = torch.from_dlpack(call("on_device", x))
            assert y.is_cuda and torch.equal(x, y)
            del y
            found.append(median(lambda: call("on_device", x)))
            found.append(median(lambda: torch.from_numpy(call("on_host", x.cpu()).as_numpy()).cuda()))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(found, np.float32))])]
"""


def ask(port: int, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", data), timeout=120) as reply:
        text = reply.read()
        return json.loads(text) if text else None


def main() -> None:
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "bin" / "nereid")
    with tempfile.TemporaryDirectory() as repository:
        models = {"on_device": (TAKES, RETURNS), "on_host": ("", RETURNS), "calls": ("", CALLS)}
        for name, (parameters, source) in models.items():
            (Path(repository) / name / "1").mkdir(parents=True)
            (Path(repository) / name / "config.pbtxt").write_text(CONFIG + parameters)
            (Path(repository) / name / "1" / "model.py").write_text(source)
        reserved = Port()
        port = reserved.number
        flags = ["--allow-grpc=false", "--allow-metrics=false", f"--http-port={port}", "--http-address=127.0.0.1"]
        python = "--backend-config=python,python-executable=" + sys.executable
        command = [binary, "--model-repository=" + repository, python, *flags]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for _ in range(600):
                try:
                    ask(port, "/v2/health/ready")
                    break
                except OSError:
                    time.sleep(0.2)
            tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [0]}
            reply = ask(port, "/v2/models/calls/infer", {"inputs": [tensor]})
            small, small_host, large, large_host = reply["outputs"][0]["data"]
        finally:
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=60)
            reserved.close()
            if os.environ.get("VERBOSE"):
                sys.stdout.write(output.decode("utf-8", "replace"))
        print(f"call       4 B   on the device {small:9.1f} µs   by the host {small_host:9.1f} µs")
        print(f"call    64 MiB   on the device {large:9.1f} µs   by the host {large_host:9.1f} µs")
        print(f"64 MiB / 4 B on the device {large / small:.2f}   device / host at 64 MiB {large / large_host:.3f}")


if __name__ == "__main__":
    main()
