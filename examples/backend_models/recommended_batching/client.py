#!/usr/bin/env python3
"""Sends two requests at once, which the server executes together, and reads the statistics that the backend reports."""

from __future__ import annotations

import argparse
import sys

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002)
options = parser.parse_args()

with triton.InferenceServerClient(f"{options.host}:{options.http_port}", concurrency=2, network_timeout=60) as client:
    sent = [np.arange(16, dtype=np.float32).reshape(1, 4, 4) + 100 * n for n in range(2)]
    waiting = []
    for array in sent:
        tensor = triton.InferInput("INPUT", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        waiting.append(client.async_infer("recommended_batching", [tensor]))
    for array, answer in zip(sent, waiting):
        got = answer.get_result().as_numpy("OUTPUT")
        print(f"INPUT\n{array}\nOUTPUT\n{got}")
        if not np.array_equal(got, array):
            sys.exit("recommended_batching example error: wrong OUTPUT")
    statistics = client.get_inference_statistics("recommended_batching")["model_stats"][0]
    print(f"{statistics['inference_count']} inferences in {statistics['execution_count']} executions")
print("PASS: recommended_batching")
