#!/usr/bin/env python3
"""Sends vectors of several lengths to identity_fp32, over HTTP and over gRPC."""

import argparse
import sys
import time

import numpy as np
import tritonclient.grpc
import tritonclient.http

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

# The two clients have the same classes and methods.
for protocol, triton, port in (
    ("HTTP", tritonclient.http, options.http_port),
    ("gRPC", tritonclient.grpc, options.grpc_port),
):
    with triton.InferenceServerClient(f"{options.host}:{port}") as client:
        for length in 0, 1, 1000, 1000000:
            array = np.random.rand(length).astype(np.float32)
            vector = triton.InferInput("INPUT0", array.shape, "FP32")
            vector.set_data_from_numpy(array)

            start = time.perf_counter()
            answer = client.infer("identity_fp32", [vector])
            took = time.perf_counter() - start

            print(f"{protocol}  {array.nbytes:>9,} bytes there and back in {took * 1e3:.2f} ms")
            if not np.array_equal(answer.as_numpy("OUTPUT0"), array):
                sys.exit(f"identity_fp32 example error: {protocol} returned something else")
print("PASS: identity_fp32")
