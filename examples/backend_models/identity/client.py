#!/usr/bin/env python3
"""Sends numbers and strings and receives the same."""

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

numbers = np.arange(4 << 20, dtype=np.float32)  # 16 MiB
words = np.array([b"zero", b"", "größer".encode()], np.object_)
inputs = [
    triton.InferInput("INPUT0", list(numbers.shape), "FP32"),
    triton.InferInput("INPUT1", list(words.shape), "BYTES"),
]
inputs[0].set_data_from_numpy(numbers)
inputs[1].set_data_from_numpy(words)
with triton.InferenceServerClient(f"{options.host}:{options.http_port}", network_timeout=60) as client:
    both = client.infer("identity", inputs)
    one = client.infer("identity", inputs[1:])
print(both.as_numpy("OUTPUT0"), both.as_numpy("OUTPUT1"), one.as_numpy("OUTPUT1"))
if not np.array_equal(both.as_numpy("OUTPUT0"), numbers) or both.as_numpy("OUTPUT1").tolist() != words.tolist():
    sys.exit("identity example error: wrong outputs")
if one.as_numpy("OUTPUT0") is not None or one.as_numpy("OUTPUT1").tolist() != words.tolist():
    sys.exit("identity example error: wrong outputs of a request without INPUT0")
print("PASS: identity")
