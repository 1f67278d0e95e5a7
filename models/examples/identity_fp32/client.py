#!/usr/bin/env python3
"""Sends vectors of several lengths to identity_fp32, over HTTP and over gRPC: client.py [HOST]"""

import sys
import time

import numpy as np
import tritonclient.grpc
import tritonclient.http

host = sys.argv[1] if len(sys.argv) > 1 else "localhost"

# The two clients have the same classes and methods.
for protocol, triton, port in ("HTTP", tritonclient.http, 8000), ("gRPC", tritonclient.grpc, 8001):
    with triton.InferenceServerClient(f"{host}:{port}") as client:
        for length in 0, 1, 1000, 1000000:
            array = np.random.rand(length).astype(np.float32)
            vector = triton.InferInput("INPUT0", array.shape, "FP32")
            vector.set_data_from_numpy(array)

            start = time.perf_counter()
            answer = client.infer("identity_fp32", [vector])
            took = time.perf_counter() - start

            print(f"{protocol}  {array.nbytes:>9,} bytes there and back in {took * 1e3:.2f} ms")
            assert np.array_equal(answer.as_numpy("OUTPUT0"), array)
