#!/usr/bin/env python3
"""Sends two sequences in turns and compares with the cell computed by numpy; then more sequences than have room."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001)
parser.add_argument("--metrics-port", type=int, default=8002)
options = parser.parse_args()

cell = json.loads((Path(__file__).parent / "1" / "cell.json").read_text())
input_weights, state_weights, bias = (np.array(cell[k], np.float32) for k in ("input_weights", "state_weights", "bias"))
URL = f"{options.host}:{options.http_port}"


def ask(client: triton.InferenceServerClient, sequence: int, step: Any, start: bool, end: bool) -> Any:
    tensor = triton.InferInput("INPUT", [1, 2], "FP32")
    tensor.set_data_from_numpy(step.reshape(1, 2))
    answer = client.infer("stateful_cell", [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end)
    return answer.as_numpy("OUTPUT")


with triton.InferenceServerClient(URL) as client:
    states: dict[int, Any] = {}
    steps = np.random.rand(4, 2).astype(np.float32)
    for i, step in enumerate(steps):
        for sequence, sign in (1001, 1), (1002, -1):
            before = states.get(sequence, np.zeros(3, np.float32))
            states[sequence] = np.tanh(input_weights @ (sign * step) + state_weights @ before + bias)
            got = ask(client, sequence, sign * step, start=i == 0, end=i == len(steps) - 1)
            print(f"sequence {sequence}  INPUT {sign * step}  OUTPUT {got}")
            if got.shape != (1, 3) or not np.allclose(got, states[sequence], atol=1e-6):
                sys.exit(f"stateful_cell example error: wrong OUTPUT, want {states[sequence]}")

    # Of the 8 sequences that the server lets in, the config gives half a state.
    for sequence in range(1, 5):
        ask(client, sequence, steps[0], start=True, end=False)
    try:
        ask(client, 5, steps[0], start=True, end=True)
        sys.exit("stateful_cell example error: a fifth sequence was let in")
    except triton.InferenceServerException as error:
        print(error)
        if "Too many simultaneous connections" not in str(error):
            sys.exit(f"stateful_cell example error: {error}")
    for sequence in range(1, 5):
        ask(client, sequence, steps[0], start=False, end=True)
print("PASS: stateful_cell")
