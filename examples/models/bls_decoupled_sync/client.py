#!/usr/bin/env python3
"""Asks bls_decoupled_sync over HTTP for the sum of what square_int32 sends."""

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
    for value in 4, 2, 0, 1:
        tensor = triton.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([value], np.int32))
        answer = client.infer("bls_decoupled_sync", [tensor], outputs=[triton.InferRequestedOutput("SUM")])

        total = answer.as_numpy("SUM")
        print(f"IN {value}  SUM {total}  {total.dtype}")
        if total.tolist() != [value**2]:
            sys.exit(f"bls_decoupled_sync example error: SUM is {total}, want {value**2}")

print("PASS: BLS Decoupled Sync")
