#!/usr/bin/env python3
"""Sends implicit_state two sequences of requests that alternate, over HTTP."""

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

# Values to send, and the expected totals.
sequences = {2001: ([1, 2, 3], [1, 3, 6]), 2002: ([10, 20, 30], [10, 30, 60])}

with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    for i in range(3):
        for sequence, (values, totals) in sequences.items():
            tensor = triton.InferInput("INPUT", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.array([[values[i]]], np.int32))
            answer = client.infer(
                "implicit_state", [tensor], sequence_id=sequence, sequence_start=i == 0, sequence_end=i == 2
            )
            names = [output["name"] for output in answer.get_response()["outputs"]]
            total = answer.as_numpy("OUTPUT").item()
            print(f"sequence {sequence}  INPUT {values[i]}  OUTPUT {total}")
            if total != totals[i] or names != ["OUTPUT"]:
                sys.exit(f"implicit_state example error: OUTPUT is {total} of {names}, want {totals[i]}")
print("PASS: implicit_state")
