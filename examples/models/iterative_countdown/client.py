#!/usr/bin/env python3
"""Has iterative_countdown count down from several numbers at once, over a gRPC stream."""

from __future__ import annotations

import argparse
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000, help="not needed")
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

counts = [3, 7, 1, 5]
got: dict[str, list[int]] = {str(count): [] for count in counts}
together = []

with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for count in counts:
        tensor = triton.InferInput("COUNT", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.array([[count]], np.int32))
        client.async_stream_infer("iterative_countdown", [tensor], request_id=str(count))
    for _ in range(sum(counts)):
        result, error = answers.get(timeout=30)
        if error:
            raise error
        got[result.get_response().id].append(result.as_numpy("LEFT").item())
        together.append(result.as_numpy("REQUESTS").item())
    client.stop_stream()

for count in counts:
    print(f"COUNT {count}  LEFT {got[str(count)]}")
    if got[str(count)] != list(range(count - 1, -1, -1)):
        sys.exit(f"iterative_countdown example error: {got[str(count)]}, want the numbers from {count - 1} to 0")
print(f"up to {max(together)} of {len(counts)} requests took a step together")
print("PASS: iterative_countdown")
