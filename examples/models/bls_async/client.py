#!/usr/bin/env python3
"""Asks bls_async over HTTP for a sum and a difference, which it has from two other models."""

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

a, b = np.random.rand(2, 4).astype(np.float32)
inputs = [triton.InferInput(name, [4], "FP32") for name in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(a)
inputs[1].set_data_from_numpy(b)
outputs = [triton.InferRequestedOutput(name) for name in ("OUTPUT0", "OUTPUT1")]

with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:

    def ask(parameters: dict[str, str] | None = None) -> None:
        answer = client.infer("bls_async", inputs, outputs=outputs, parameters=parameters)
        total, difference = answer.as_numpy("OUTPUT0"), answer.as_numpy("OUTPUT1")
        print(f"INPUT0 {a} + INPUT1 {b} = OUTPUT0 {total}")
        print(f"INPUT0 {a} - INPUT1 {b} = OUTPUT1 {difference}")
        if not (np.allclose(total, a + b) and np.allclose(difference, a - b)):
            sys.exit("bls_async example error: wrong sum or difference")

    try:
        ask()
    except triton.InferenceServerException as error:
        if "is not installed" not in str(error.message()):
            raise
        print(f"SKIP: {error.message()}")
        print("add_sub is asked twice instead")
        ask({"models": "add_sub add_sub"})

print("PASS: BLS Async")
