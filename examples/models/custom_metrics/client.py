#!/usr/bin/env python3
"""Asks custom_metrics over HTTP and looks for its metric."""

import argparse
import sys
import urllib.request

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001, help="not needed")
parser.add_argument("--metrics-port", type=int, default=8002)
options = parser.parse_args()

a, b = np.random.rand(2, 4).astype(np.float32)
inputs = [triton.InferInput(name, [4], "FP32") for name in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(a)
inputs[1].set_data_from_numpy(b)

with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    answer = client.infer("custom_metrics", inputs, request_id="1")
if not (np.allclose(answer.as_numpy("OUTPUT0"), a + b) and np.allclose(answer.as_numpy("OUTPUT1"), a - b)):
    sys.exit("custom_metrics example error: wrong sum or difference")

with urllib.request.urlopen(f"http://{options.host}:{options.metrics_port}/metrics") as response:
    lines = response.read().decode().splitlines()
for start in (
    "# HELP requests_process_latency_ns Cumulative time spent processing requests",
    "# TYPE requests_process_latency_ns counter",
    'requests_process_latency_ns{model="custom_metrics",version="1"} ',
):
    found = [line for line in lines if line.startswith(start)]
    if len(found) != 1:
        sys.exit(f"custom_metrics example error: {len(found)} lines of /metrics begin with {start!r}, want 1")
    print(found[0])
print("PASS: custom_metrics")
