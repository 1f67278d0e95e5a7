#!/usr/bin/env python3
"""Sends dynamic_batching many requests at once over gRPC and looks at how they were batched."""

from __future__ import annotations

import argparse
import queue
import sys

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000, help="not needed")
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

REQUESTS = 32


def executions() -> int:
    return int(client.get_inference_statistics("dynamic_batching").model_stats[0].execution_count)


with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    before = executions()
    answers: queue.Queue[tuple[np.ndarray, triton.InferResult, Exception]] = queue.Queue()
    for i in range(REQUESTS):
        array = np.full((1, 4), i / REQUESTS, np.float32)
        tensor = triton.InferInput("INPUT", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        client.async_infer(
            "dynamic_batching", [tensor], lambda result, error, array=array: answers.put((array, result, error))
        )
    together = []
    for _ in range(REQUESTS):
        array, result, error = answers.get(timeout=30)
        if error:
            raise error
        if not np.allclose(result.as_numpy("OUTPUT"), np.tanh(array)):
            sys.exit(f"dynamic_batching example error: {result.as_numpy('OUTPUT')}, want {np.tanh(array)}")
        together.append(result.as_numpy("REQUESTS").item())
    needed = executions() - before

print(f"{REQUESTS} requests in {needed} executions, {max(together)} in the largest")
if max(together) < 2 or needed >= REQUESTS:
    sys.exit("dynamic_batching example error: each request was executed by itself")
print("PASS: dynamic_batching")
