#!/usr/bin/env python3
"""Asks add_sub over HTTP and over gRPC: client.py [HOST]"""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

host = sys.argv[1] if len(sys.argv) > 1 else "localhost"
a = np.array([10, 20, 30, 40], np.float32)
b = np.array([1, 2, 3, 4], np.float32)

# The two clients have the same classes and methods.
for protocol, triton, port in ("HTTP", tritonclient.http, 8000), ("gRPC", tritonclient.grpc, 8001):
    inputs = [triton.InferInput(name, [4], "FP32") for name in ("INPUT0", "INPUT1")]
    inputs[0].set_data_from_numpy(a)
    inputs[1].set_data_from_numpy(b)

    with triton.InferenceServerClient(f"{host}:{port}") as client:
        answer = client.infer("add_sub", inputs)

    total, difference = answer.as_numpy("OUTPUT0"), answer.as_numpy("OUTPUT1")
    print(f"{protocol}  INPUT0  {a}  INPUT1  {b}")
    print(f"      OUTPUT0 {total}  OUTPUT1 {difference}")
    assert np.array_equal(total, a + b)
    assert np.array_equal(difference, a - b)
