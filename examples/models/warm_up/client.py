#!/usr/bin/env python3
"""Asks warm_up over HTTP whether it has been warmed up."""

from __future__ import annotations

import argparse
import sys

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001, help="not needed")
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    for rows, least in (1, 1), (8, 2):
        array = np.random.rand(rows, 64).astype(np.float32)
        tensor = triton.InferInput("INPUT", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        answer = client.infer("warm_up", [tensor])
        want = (np.roll(array, 1, axis=1) + array + np.roll(array, -1, axis=1)) / 3
        if not np.allclose(answer.as_numpy("OUTPUT"), want):
            sys.exit("warm_up example error: OUTPUT is wrong")
        seen = answer.as_numpy("SEEN")[0, 0]
        print(f"the model had seen {seen} batches of {rows} before this one")
        if seen < least:
            sys.exit(f"warm_up example error: {seen}, want {least} or more")
print("PASS: warm_up")
