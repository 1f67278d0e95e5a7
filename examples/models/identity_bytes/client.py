#!/usr/bin/env python3
"""Sends strings to identity_bytes, over HTTP and over gRPC."""

import argparse
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()
words = ["", "nereid", "Νηρηΐς", "海の精"]
array = np.array([[word.encode() for word in words]], dtype=object)  # a batch of one list

# The two clients have the same classes and methods.
for protocol, triton, port in (
    ("HTTP", tritonclient.http, options.http_port),
    ("gRPC", tritonclient.grpc, options.grpc_port),
):
    strings = triton.InferInput("INPUT0", array.shape, "BYTES")
    strings.set_data_from_numpy(array)

    with triton.InferenceServerClient(f"{options.host}:{port}") as client:
        answer = client.infer("identity_bytes", [strings])

    returned = [element.decode() for element in answer.as_numpy("OUTPUT0")[0]]
    print(f"{protocol}  {returned}")
    if returned != words:
        sys.exit(f"identity_bytes example error: {protocol} returned {returned}")
print("PASS: identity_bytes")
