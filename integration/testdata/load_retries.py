"""Loads models whose first initializations fail: load_retries.py <http host:port> <gRPC host:port> <directory>.

The server tries each load three times. The number in a model's name is its first successful attempt; attempts are
counted by the bytes of a file in the directory.
"""

import pathlib
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, DIRECTORY = sys.argv[1:4]
RAISED = "Internal: RuntimeError: attempt 3\n"
DIED = "Internal: Stub process 'fourth_dies_0' is not healthy."


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def entry(client, name):
    if isinstance(client, http.InferenceServerClient):
        index = client.get_model_repository_index()
    else:
        index = client.get_model_repository_index(as_json=True)["models"]
    (found,) = (e for e in index if e["name"] == name)
    return found.get("state"), found.get("reason", "").split("\nAt:\n")[0]


def counted(name):
    return pathlib.Path(DIRECTORY) / f"{name}.1.attempts"


def works(module, client, name):
    expect(name, entry(client, name), ("READY", ""))
    assert client.is_model_ready(name)
    tensor = module.InferInput("INPUT0", [1], "FP32")
    tensor.set_data_from_numpy(np.array([7], np.float32))
    expect(name, client.infer(name, [tensor]).as_numpy("OUTPUT0").tolist(), [7])


def unload(client, name):
    client.unload_model(name)
    deadline = time.monotonic() + 60
    while entry(client, name) != ("UNAVAILABLE", "unloaded"):
        assert time.monotonic() < deadline, entry(client, name)
        time.sleep(0.01)
    counted(name).unlink()


for module, client in (
    (http, http.InferenceServerClient(HTTP, network_timeout=120)),
    (grpc, grpc.InferenceServerClient(GRPC)),
):
    for name, attempts in (("second", 2), ("third", 3), ("third_dies", 3)):
        client.load_model(name)
        works(module, client, name)
        expect(f"attempts to load {name}", counted(name).stat().st_size, attempts)
        unload(client, name)
    for name, reason in (("fourth", RAISED), ("fourth_dies", DIED)):
        try:
            client.load_model(name)
        except InferenceServerException as error:
            want = f"load failed for model '{name}': version 1 is at UNAVAILABLE state: {reason}"
            assert error.message().startswith(want), error.message()
        else:
            raise AssertionError(f"the load of {name} is a success")
        expect(name, entry(client, name), ("UNAVAILABLE", reason))
        assert not client.is_model_ready(name)
        expect(f"attempts to load {name}", counted(name).stat().st_size, 3)
        client.load_model(name)  # the fourth attempt
        works(module, client, name)
        expect(f"attempts to load {name}", counted(name).stat().st_size, 4)
        unload(client, name)
