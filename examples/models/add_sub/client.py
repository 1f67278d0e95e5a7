#!/usr/bin/env python3
"""Asks add_sub over HTTP for the sum and the difference of two random vectors."""

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

a, b = np.random.rand(2, 4).astype(np.float32)
inputs = [triton.InferInput(name, [4], "FP32") for name in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(a)
inputs[1].set_data_from_numpy(b)
outputs = [triton.InferRequestedOutput(name) for name in ("OUTPUT0", "OUTPUT1")]

with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    answer = client.infer("add_sub", inputs, request_id="1", outputs=outputs)

print(answer.get_response())
total, difference = answer.as_numpy("OUTPUT0"), answer.as_numpy("OUTPUT1")
print(f"INPUT0 {a} + INPUT1 {b} = OUTPUT0 {total}")
print(f"INPUT0 {a} - INPUT1 {b} = OUTPUT1 {difference}")
if not (np.allclose(total, a + b) and np.allclose(difference, a - b)):
    sys.exit("add_sub example error: wrong sum or difference")
print("PASS: add_sub")
