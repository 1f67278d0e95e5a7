#!/usr/bin/env python3
"""Sends sequence_counter two sequences of requests that alternate, over HTTP and over gRPC."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

# Values to send, and the expected totals. A correlation ID is a number or a text.
sequences: dict[int | str, tuple[list[int], list[int]]] = {
    1001: ([1, 2, 3], [1, 3, 6]),
    "tea": ([10, 20, 30], [10, 30, 60]),
}


def send(client: Any, sequence: int | str, value: int, start: bool, end: bool) -> list[int]:
    module = tritonclient.http if isinstance(client, tritonclient.http.InferenceServerClient) else tritonclient.grpc
    tensor = module.InferInput("INPUT", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    answer = client.infer("sequence_counter", [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end)
    total: list[int] = answer.as_numpy("OUTPUT").tolist()
    return total


for protocol, client in (
    ("HTTP", tritonclient.http.InferenceServerClient(f"{options.host}:{options.http_port}")),
    ("gRPC", tritonclient.grpc.InferenceServerClient(f"{options.host}:{options.grpc_port}")),
):
    for i in range(3):
        for sequence, (values, totals) in sequences.items():
            total = send(client, sequence, values[i], start=i == 0, end=i == 2)
            print(f"{protocol}  sequence {sequence}  INPUT {values[i]}  OUTPUT {total}")
            if total != [totals[i]]:
                sys.exit(f"sequence_counter example error: {total}, want {totals[i]}")

    # The end has been sent, and the model has forgotten the sequence.
    try:
        send(client, "tea", 40, start=False, end=False)
    except InferenceServerException as error:
        print(f"{protocol}  {error.message()}")
    else:
        sys.exit("sequence_counter example error: a sequence went on after its end")
    client.close()
print("PASS: sequence_counter")
