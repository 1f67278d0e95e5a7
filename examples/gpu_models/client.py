"""Asks the examples for small and large tensors: `python3 client.py [HOST:PORT]`."""

import json
import sys
import urllib.request

import numpy as np


def infer(address, model, x):
    """Ask a model by binary tensors over HTTP."""
    head = json.dumps(
        {
            "inputs": [
                {"name": "X", "datatype": "FP32", "shape": [len(x)], "parameters": {"binary_data_size": x.nbytes}}
            ],
            "outputs": [{"name": "Y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    request = urllib.request.Request(
        f"http://{address}/v2/models/{model}/infer",
        head + x.tobytes(),
        {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"},
    )
    with urllib.request.urlopen(request) as reply:
        body = reply.read()
        return np.frombuffer(body[int(reply.headers["Inference-Header-Content-Length"]) :], np.float32)


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"
    for size in (1, 5000, 16 << 20):
        x = (np.arange(size) % 1000).astype(np.float32)
        for model, want in (("device_scale", 2 * x), ("device_chain", (2 * x + 1) * 2), ("device_ensemble", 4 * x)):
            got = infer(address, model, x)
            if not np.array_equal(got, want):
                sys.exit(f"example error: {model} answers {got[:4]}, want {want[:4]}")
    print("PASS: gpu_models")


if __name__ == "__main__":
    main()
