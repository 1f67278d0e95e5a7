#!/usr/bin/env python3
"""Has bls_sync ask add_sub, pytorch and a model that there is not."""

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

    def ask(model: str) -> triton.InferResult:
        name = triton.InferInput("MODEL_NAME", [1], "BYTES")
        name.set_data_from_numpy(np.array([model], dtype=object))
        return client.infer("bls_sync", [name, *inputs], outputs=outputs)

    for model in "add_sub", "pytorch":
        try:
            answer = ask(model)
        except triton.InferenceServerException as error:
            if model != "pytorch" or "is not installed" not in str(error.message()):
                raise
            print(f"SKIP: {error.message()}")
            continue
        total, difference = answer.as_numpy("OUTPUT0"), answer.as_numpy("OUTPUT1")
        print(f"{model}: INPUT0 {a} + INPUT1 {b} = OUTPUT0 {total}")
        print(f"{model}: INPUT0 {a} - INPUT1 {b} = OUTPUT1 {difference}")
        if not (np.allclose(total, a + b) and np.allclose(difference, a - b)):
            sys.exit(f"bls_sync example error: wrong sum or difference by {model}")

    try:
        ask("undefined_model")
    except triton.InferenceServerException as error:
        print(f"undefined_model: {error.message()}")
    else:
        sys.exit("bls_sync example error: an answer of a model that there is not")

print("PASS: BLS Sync")
