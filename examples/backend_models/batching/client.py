#!/usr/bin/env python3
"""Sends two requests at once to "batching", which the server executes together, and one to "nonbatching"."""

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


def request(values: list[int], batched: bool) -> list[triton.InferInput]:
    array = np.array([values] if batched else values, np.int32)
    tensor = triton.InferInput("IN0", list(array.shape), "INT32")
    tensor.set_data_from_numpy(array)
    return [tensor]


with triton.InferenceServerClient(f"{options.host}:{options.http_port}", concurrency=2, network_timeout=60) as client:
    sent = [[1, 2, 3, 4], [10, 11, 12, 13]]
    waiting = [client.async_infer("batching", request(values, batched=True)) for values in sent]
    for values, answer in zip(sent, waiting):
        got = answer.get_result().as_numpy("OUT0")
        print(f"batching: IN0 {[values]} -> OUT0 {got.tolist()}")
        if got.tolist() != [values]:
            sys.exit("batching example error: wrong OUT0")

    got = client.infer("nonbatching", request([1, 2, 3, 4], batched=False)).as_numpy("OUT0")
    print(f"nonbatching: IN0 [1, 2, 3, 4] -> OUT0 {got.tolist()}")
    if got.tolist() != [1, 2, 3, 4]:
        sys.exit("batching example error: wrong OUT0")
print("PASS: batching")
