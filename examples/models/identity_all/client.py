#!/usr/bin/env python3
"""Sends a matrix of each data type to identity_all, over HTTP and over gRPC."""

import argparse
import sys

import ml_dtypes
import numpy as np
import tritonclient.grpc
import tritonclient.http

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()
integers = "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"

matrices = {
    "BOOL": np.array([[True, False, True]]),
    "FP16": np.array([[0.5, -2]], np.float16),
    "FP32": np.array([[0.25], [np.inf]], np.float32),
    "FP64": np.array([[1 / 3]]),
    "BF16": np.array([[1.5, -0.125]], ml_dtypes.bfloat16),  # numpy itself has no such type
    "BYTES": np.array([[b"one", b""]], dtype=object),
}
for name in integers:
    limits = np.iinfo(name.lower())
    matrices[name] = np.array([[limits.min, 1, limits.max]], name.lower())

# The two clients have the same classes and methods.
for protocol, triton, port in (
    ("HTTP", tritonclient.http, options.http_port),
    ("gRPC", tritonclient.grpc, options.grpc_port),
):
    inputs = []
    for name, matrix in matrices.items():
        tensor = triton.InferInput(f"INPUT_{name}", matrix.shape, name)
        tensor.set_data_from_numpy(matrix)
        inputs.append(tensor)

    with triton.InferenceServerClient(f"{options.host}:{port}") as client:
        answer = client.infer("identity_all", inputs)

    for name, matrix in matrices.items():
        returned = answer.as_numpy(f"OUTPUT_{name}")
        print(f"{protocol}  {name:6} {returned.tolist()}")
        if not np.array_equal(returned, matrix):
            sys.exit(f"identity_all example error: {protocol} returned {returned}")
print("PASS: identity_all")
