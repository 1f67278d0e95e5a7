#!/usr/bin/env python3
"""Sends strings to identity_bytes, over HTTP and over gRPC: client.py [HOST]"""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

host = sys.argv[1] if len(sys.argv) > 1 else "localhost"
words = ["", "nereid", "Νηρηΐς", "海の精"]
array = np.array([[word.encode() for word in words]], dtype=object)  # a batch of one list

# The two clients have the same classes and methods.
for protocol, triton, port in ("HTTP", tritonclient.http, 8000), ("gRPC", tritonclient.grpc, 8001):
    strings = triton.InferInput("INPUT0", array.shape, "BYTES")
    strings.set_data_from_numpy(array)

    with triton.InferenceServerClient(f"{host}:{port}") as client:
        answer = client.infer("identity_bytes", [strings])

    returned = [element.decode() for element in answer.as_numpy("OUTPUT0")[0]]
    print(f"{protocol}  {returned}")
    assert returned == words
