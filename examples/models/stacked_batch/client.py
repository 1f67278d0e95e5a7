#!/usr/bin/env python3
"""Sends stacked_batch requests of one to three rows at once over gRPC, and stacked_ragged words of all lengths."""

from __future__ import annotations

import argparse
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000, help="not needed")
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()


def send(model: str, arrays: list[np.ndarray]) -> list[triton.InferResult]:
    """Send all at once; the results are in the order of the arrays."""
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for i, array in enumerate(arrays):
        tensor = triton.InferInput("INPUT", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        client.async_infer(model, [tensor], lambda result, error, i=i: answers.put((i, result, error)))
    results: dict[int, triton.InferResult] = {}
    for _ in arrays:
        i, result, error = answers.get(timeout=30)
        if error:
            raise error
        results[i] = result
    return [results[i] for i in range(len(arrays))]


def check(model: str, got: np.ndarray, want: np.ndarray) -> None:
    if got.shape != want.shape or not np.allclose(got, want):
        sys.exit(f"{model} example error: {got}, want {want}")


random = np.random.default_rng(1)
with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    rows = [random.random((1 + i % 3, 4), np.float32) for i in range(24)]
    most = 0
    for array, result in zip(rows, send("stacked_batch", rows)):
        want = np.stack([array[:, 0] + 2 * array[:, 2], array[:, 1] + 2 * array[:, 3]], axis=1)
        check("stacked_batch", result.as_numpy("OUTPUT"), want)
        most = max(most, int(result.as_numpy("ROWS").max()))
    print(f"{len(rows)} requests of {sum(map(len, rows))} rows: the model saw up to {most} rows at once")

    signals = [random.random((1, 1 + i % 5), np.float32) for i in range(24)]
    most = 0
    for array, result in zip(signals, send("stacked_ragged", signals)):
        check("stacked_ragged", result.as_numpy("MEAN"), array.mean(axis=1, keepdims=True))
        check("stacked_ragged", result.as_numpy("SCALED"), array / array.max())
        most = max(most, result.as_numpy("REQUESTS").item())
    print(f"{len(signals)} signals of 1 to 5 values: the model saw up to {most} signals at once")
print("PASS: stacked_batch")
