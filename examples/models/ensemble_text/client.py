#!/usr/bin/env python3
"""Sends ensemble_text a few texts over HTTP, one by one and as a batch."""

from __future__ import annotations

import argparse
import sys

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001, help="not needed")
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()

texts = ["Sun and warm sand", "Rain and wind and more rain", "Snow on cold hands"]
labels = ["summer", "autumn", "winter"]


def ask(batch: list[str]) -> list[str]:
    array = np.array([[text.encode()] for text in batch], np.object_)
    tensor = triton.InferInput("TEXT", array.shape, "BYTES")
    tensor.set_data_from_numpy(array)
    answer = client.infer("ensemble_text", [tensor])
    sure = answer.as_numpy("PROBABILITY")[:, 0]
    found = [label.decode() for label in answer.as_numpy("LABEL")[:, 0]]
    for text, label, probability in zip(batch, found, sure):
        print(f"{text!r}: {label}, {probability:.0%}")
        if probability < 0.9:
            sys.exit(f"ensemble_text example error: the probability is {probability}")
    return found


with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    alone = [ask([text])[0] for text in texts]
    if alone != labels or ask(texts) != labels:
        sys.exit(f"ensemble_text example error: {alone}, want {labels}")
print("PASS: ensemble_text")
