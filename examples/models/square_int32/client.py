#!/usr/bin/env python3
"""Sends square_int32 four values over one gRPC stream and counts the responses to each."""

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

values = [4, 2, 0, 1]

# The stream calls back from a thread of its own.
arrived: queue.Queue[tuple[triton.InferResult, triton.InferenceServerException]] = queue.Queue()
received: dict[str, list[int]] = {str(i): [] for i in range(len(values))}
with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    client.start_stream(callback=lambda result, error: arrived.put((result, error)))
    for i, value in enumerate(values):
        tensor = triton.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([value], np.int32))
        client.async_stream_infer("square_int32", [tensor], request_id=str(i))

    for _ in range(sum(values)):
        answer, error = arrived.get(timeout=60)
        if error:
            sys.exit(f"square_int32 example error: {error}")
        out = answer.as_numpy("OUT")
        print(f"request {answer.get_response().id}  OUT {out}")
        received[answer.get_response().id].append(int(out[0]))
    client.stop_stream()

# The responses to one request come in their order, among those to others.
for i, value in enumerate(values):
    if received[str(i)] != [value] * value:
        sys.exit(f"square_int32 example error: {value} was answered with {received[str(i)]}")
if not arrived.empty():
    sys.exit(f"square_int32 example error: another response came: {arrived.get()}")
print("PASS: square_int32")
