#!/usr/bin/env python3
"""Sends repeat_int32 four elements over a gRPC stream and receives a response for each."""

from __future__ import annotations

import argparse
import queue
import sys

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000, help="not needed")
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

values = [4, 2, 0, 1]
arrays = {
    "IN": np.array(values, np.int32),
    "DELAY": np.array([1, 2, 3, 4], np.uint32),
    "WAIT": np.array([5], np.uint32),
}
inputs = []
for name, array in arrays.items():
    tensor = triton.InferInput(name, array.shape, "INT32" if name == "IN" else "UINT32")
    tensor.set_data_from_numpy(array)
    inputs.append(tensor)
outputs = [triton.InferRequestedOutput(name) for name in ("OUT", "IDX")]

# The stream calls back from a thread of its own.
arrived: queue.Queue[tuple[triton.InferResult, triton.InferenceServerException]] = queue.Queue()
with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    client.start_stream(callback=lambda result, error: arrived.put((result, error)))
    client.async_stream_infer("repeat_int32", inputs, request_id="0", outputs=outputs)

    received: list[tuple[str, int, list[int]]] = []
    while len(received) < len(values):
        answer, error = arrived.get(timeout=60)
        if error:
            sys.exit(f"repeat_int32 example error: {error}")
        index, out = answer.as_numpy("IDX")[0], answer.as_numpy("OUT")
        print(f"request {answer.get_response().id}  IDX {index}  OUT {out}")
        received.append((answer.get_response().id, int(index), out.tolist()))
    client.stop_stream()

# However many elements the config makes OUT have, they are all the same.
for i, (request, index, out) in enumerate(received):
    if request != "0" or index != i or set(out) != {values[i]}:
        sys.exit(f"repeat_int32 example error: response {i} is {received[i]}")
if not arrived.empty():
    sys.exit(f"repeat_int32 example error: another response came: {arrived.get()}")
print("PASS: repeat_int32")
