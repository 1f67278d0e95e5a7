#!/usr/bin/env python3
"""Sends two requests whose responses come in turns, since the backend answers each in the background."""

from __future__ import annotations

import argparse
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002)
options = parser.parse_args()


def request(values: list[int], delay: int, wait: int) -> list[triton.InferInput]:
    arrays = {
        "IN": ("INT32", np.array(values, np.int32)),
        "DELAY": ("UINT32", np.full(len(values), delay, np.uint32)),
        "WAIT": ("UINT32", np.array([wait], np.uint32)),
    }
    inputs = []
    for name, (datatype, array) in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


# The first one takes longer for each response than the second one for all; the third has none.
sent = {"slow": [4, 2, 0, 1], "fast": [7, 8, 9], "none": []}
arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
received: dict[str, list[int]] = {name: [] for name in sent}
order: list[str] = []
with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    client.start_stream(callback=lambda result, error: arrived.put((result, error)))
    for name, values in sent.items():
        inputs = request(values, delay=200 if name == "slow" else 5, wait=0)
        client.async_stream_infer("repeat_int32", inputs, request_id=name, enable_empty_final_response=True)
    open_requests = len(sent)
    while open_requests:
        answer, error = arrived.get(timeout=60)
        if error:
            sys.exit(f"repeat_int32 example error: {error}")
        response = answer.get_response()
        if response.outputs:
            index, out = int(answer.as_numpy("IDX")[0]), int(answer.as_numpy("OUT")[0])
            print(f"request {response.id}  IDX {index}  OUT {out}")
            if index != len(received[response.id]):
                sys.exit(f"repeat_int32 example error: IDX {index} is out of order")
            received[response.id].append(out)
            order.append(response.id)
        if response.parameters["triton_final_response"].bool_param:
            open_requests -= 1
    client.stop_stream()

if received != sent:
    sys.exit(f"repeat_int32 example error: got {received}, want {sent}")
if order[-1] != "slow":
    sys.exit(f"repeat_int32 example error: the responses came in the order {order}")
print("PASS: repeat_int32")
