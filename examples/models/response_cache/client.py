#!/usr/bin/env python3
"""Asks response_cache the same question twice over HTTP."""

from __future__ import annotations

import argparse
import random
import sys

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--host", default="localhost")
parser.add_argument("--http-port", type=int, default=8000)
parser.add_argument("--grpc-port", type=int, default=8001, help="not needed")
parser.add_argument("--metrics-port", type=int, default=8002, help="not needed")
options = parser.parse_args()


def ask(number: int) -> tuple[list[int], int]:
    tensor = triton.InferInput("INPUT", [1], "INT64")
    tensor.set_data_from_numpy(np.array([number], np.int64))
    answer = client.infer("response_cache", [tensor])
    return answer.as_numpy("DIVISORS").tolist(), answer.as_numpy("EXECUTION").item()


def hits() -> int:
    statistics = client.get_inference_statistics("response_cache")["model_stats"][0]
    return int(statistics["inference_stats"]["cache_hit"]["count"])


with triton.InferenceServerClient(f"{options.host}:{options.http_port}") as client:
    number = 6 * random.randrange(10**4, 10**5)  # nobody has asked for it yet
    before = hits()
    first, executed = ask(number)
    second, again = ask(number)
    print(f"{number} is divided by {first[:6]} ...: execution {executed}, and asked again, execution {again}")
    if first != second or first != [n for n in range(1, number + 1) if number % n == 0]:
        sys.exit(f"response_cache example error: {first} and {second}")
    if hits() == before:
        print("SKIP: the server keeps no responses; start it with --cache-config=local,size=1048576")
        sys.exit()
    if again != executed or hits() != before + 1:
        sys.exit(f"response_cache example error: {hits() - before} hits, executions {executed} and {again}")
print("PASS: response_cache")
