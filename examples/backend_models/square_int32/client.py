#!/usr/bin/env python3
"""Sends 0, 1 and 3, and receives as many responses to each."""

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

sent = [0, 1, 3]
arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
received: dict[str, list[int]] = {str(n): [] for n in sent}
with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    client.start_stream(callback=lambda result, error: arrived.put((result, error)))
    for n in sent:
        tensor = triton.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([n], np.int32))
        client.async_stream_infer("square_int32", [tensor], request_id=str(n), enable_empty_final_response=True)
    open_requests = len(sent)
    while open_requests:
        answer, error = arrived.get(timeout=60)
        if error:
            sys.exit(f"square_int32 example error: {error}")
        response = answer.get_response()
        if response.outputs:
            received[response.id].append(int(answer.as_numpy("OUT")[0]))
        if response.parameters["triton_final_response"].bool_param:
            open_requests -= 1
    client.stop_stream()

print(received)
if received != {str(n): [n] * n for n in sent}:
    sys.exit("square_int32 example error: wrong responses")
print("PASS: square_int32")
