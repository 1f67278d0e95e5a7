"""Loads models concurrently, alternating between protocols: loads.py <http host:port> <gRPC host:port> <models>."""

import concurrent.futures
import sys

import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC, *NAMES = sys.argv[1:]


def load(n, name):
    client = http.InferenceServerClient(HTTP, network_timeout=120) if n % 2 else grpc.InferenceServerClient(GRPC)
    client.load_model(name)
    assert client.is_model_ready(name), name


with concurrent.futures.ThreadPoolExecutor(len(NAMES)) as pool:
    for done in [pool.submit(load, n, name) for n, name in enumerate(NAMES)]:
        done.result()
