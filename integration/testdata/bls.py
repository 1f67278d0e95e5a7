"""Sends tensors through a model that calls others, with tritonclient: over HTTP and gRPC."""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

for library, address in ((tritonclient.http, sys.argv[1]), (tritonclient.grpc, sys.argv[2])):
    client = library.InferenceServerClient(address)
    for size in (1, 1000, 5000, 1 << 20):
        array = np.random.default_rng(size).random(size, np.float32)
        case = library.InferInput("CASE", [1], "BYTES")
        case.set_data_from_numpy(np.array([b"inputs_as_they_are"], np.object_))
        x = library.InferInput("X", [size], "FP32")
        x.set_data_from_numpy(array)
        result = client.infer("caller", [case, x], outputs=[library.InferRequestedOutput("OUT")])
        np.testing.assert_array_equal(result.as_numpy("OUT"), array)
    client.close()
