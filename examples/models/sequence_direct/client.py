#!/usr/bin/env python3
"""Sends sequence_direct and sequence_oldest six sequences whose requests alternate, over gRPC."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000, help="not needed")
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

LENGTH = 5


def send(model: str, sequence: int, value: int, start: bool, end: bool) -> int:
    tensor = triton.InferInput("INPUT", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[value]], np.int32))
    answer = client.infer(model, [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end)
    return int(answer.as_numpy("OUTPUT").item())


def run(model: str, sequence: int) -> list[int]:
    """Send one sequence: its number times 1, 2, 3 ..."""
    return [send(model, sequence, sequence * (i + 1), i == 0, i + 1 == LENGTH) for i in range(LENGTH)]


with triton.InferenceServerClient(f"{options.host}:{options.grpc_port}") as client:
    for model in "sequence_direct", "sequence_oldest":
        sequences = range(101, 107)
        with ThreadPoolExecutor(len(sequences)) as clients:
            for sequence, totals in zip(sequences, clients.map(run, [model] * len(sequences), sequences)):
                print(f"{model}  sequence {sequence}  OUTPUT {totals}")
                want = [sequence * (i + 1) * (i + 2) // 2 for i in range(LENGTH)]
                if totals != want:
                    sys.exit(f"{model} example error: {totals}, want {want}")
        # The server tracks sequences: a sequence that has ended cannot continue.
        try:
            send(model, sequences[0], 1, start=False, end=False)
        except triton.InferenceServerException as error:
            print(f"{model}  {error.message()}")
        else:
            sys.exit(f"{model} example error: a sequence went on after its end")
print("PASS: sequence_direct and sequence_oldest")
