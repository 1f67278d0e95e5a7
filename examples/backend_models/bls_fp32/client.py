#!/usr/bin/env python3
"""Asks bls_fp32, which asks two other models, for a sum and a difference."""

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

a, b = np.random.rand(2, 16).astype(np.float32)
inputs = [triton.InferInput(name, [16], "FP32") for name in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(a)
inputs[1].set_data_from_numpy(b)
with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    answer = client.infer("bls_fp32", inputs)
total, difference = answer.as_numpy("OUTPUT0"), answer.as_numpy("OUTPUT1")
print(f"INPUT0 {a} + INPUT1 {b} = OUTPUT0 {total}")
print(f"INPUT0 {a} - INPUT1 {b} = OUTPUT1 {difference}")
if not (np.array_equal(total, a + b) and np.array_equal(difference, a - b)):
    sys.exit("bls_fp32 example error: wrong sum or difference")
print("PASS: bls_fp32")
