#!/usr/bin/env python3
"""Reads over HTTP how batch_auto_complete and nobatch_auto_complete describe themselves, and asks them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001, help="not needed")
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

a, b = np.random.rand(2, 4).astype(np.float32)


def same(model: str, what: str, got: Any, want: Any) -> None:
    if got != want:
        sys.exit(f"auto_complete example error: {what} of {model} is {got}, want {want}")


with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    for model, max_batch_size in ("nobatch_auto_complete", 0), ("batch_auto_complete", 4):
        config = client.get_model_config(model)
        same(model, "max_batch_size", config["max_batch_size"], max_batch_size)
        same(model, "dynamic batching", "dynamic_batching" in config, max_batch_size > 0)
        for kind, stem in ("input", "INPUT"), ("output", "OUTPUT"):
            tensors = [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config[kind]]
            same(model, kind, tensors, [(stem + "0", "TYPE_FP32", [4]), (stem + "1", "TYPE_FP32", [4])])
        print(f"'{model}' configuration matches the expected auto complete configuration")

        shape = [1, 4] if max_batch_size else [4]
        inputs = [triton.InferInput(name, shape, "FP32") for name in ("INPUT0", "INPUT1")]
        inputs[0].set_data_from_numpy(a.reshape(shape))
        inputs[1].set_data_from_numpy(b.reshape(shape))
        answer = client.infer(model, inputs)
        same(model, "OUTPUT0", answer.as_numpy("OUTPUT0").tolist(), (a + b).reshape(shape).tolist())
        same(model, "OUTPUT1", answer.as_numpy("OUTPUT1").tolist(), (a - b).reshape(shape).tolist())

print("PASS: auto_complete")
