"""Uses models of two repositories with equal names: namespaces.py <http host:port> <gRPC host:port> <story>.

The repositories are "left" and "right". Both have a model "m", which returns 1 in left and 2 in right, and an ensemble
"e" of it. Each also has others, named after the repository: "only_…" returns 10 and 20, "…_e" is an ensemble of "m",
"…_nested" one of "e", "…_beyond" one of a model that only the other repository has, and "…_asks" calls the model that
its input names.
"""

import collections
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, STORY = sys.argv[1:4]
CLIENTS = (
    (http, http.InferenceServerClient(HTTP, network_timeout=120)),
    (grpc, grpc.InferenceServerClient(GRPC)),
)
AMBIGUOUS = (
    "There are 2 identifiers of model '{}' in global map, model namespace must be provided to resolve ambiguity."
)
PREFIX = "Model {} - Error when running inference: "


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def tried(call, *arguments, **more):
    try:
        return call(*arguments, **more)
    except InferenceServerException as error:
        return error.message()


def told(module, client, name):
    tensor = module.InferInput("IN", [1], "INT64")
    tensor.set_data_from_numpy(np.zeros(1, np.int64))
    return tried(lambda: int(client.infer(name, [tensor]).as_numpy("OUT")[0]))


def called(module, client, by, name):
    tensor = module.InferInput("NAME", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([name.encode()], np.object_))
    got = tried(lambda: client.infer(by, [tensor]).as_numpy("TOLD")[0].decode())
    return int(got) if got.isdigit() else got


def ready(client):
    """The number of ready models of each name."""
    if isinstance(client, http.InferenceServerClient):
        listed = client.get_model_repository_index()
    else:
        listed = client.get_model_repository_index(as_json=True)["models"]
    return collections.Counter(e["name"] for e in listed if e.get("state") == "READY")


def until(what, ok):
    deadline = time.monotonic() + 60
    while not ok():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def refused(module, client, name):
    """The errors for a name that is in both repositories."""
    expect(name, told(module, client, name), AMBIGUOUS.format(name))
    for asks in ("left_asks", "right_asks"):
        expect(f"{asks} {name}", called(module, client, asks, name), PREFIX.format(name) + AMBIGUOUS.format(name))
    for call in (client.get_model_metadata, client.get_model_config):
        expect(name, tried(call, name), AMBIGUOUS.format(name))
    want = f"requested model '{name}' is not available"
    expect(name, tried(client.get_inference_statistics, name), want)


WORKS = {
    "only_left": 10, "only_right": 20, "left_e": 1, "right_e": 2, "left_nested": 1, "right_nested": 2,
    "left_beyond": 20, "right_beyond": 10,
}  # fmt: skip
LONE = ("only_left", "only_right", "left_beyond", "right_beyond")  # in one repository, and independent of names in both


def works(module, client, name):
    expect(name, told(module, client, name), WORKS[name])
    for asks in ("left_asks", "right_asks"):
        expect(f"{asks} {name}", called(module, client, asks, name), WORKS[name])
    assert client.is_model_ready(name)


def served():
    """All models are served from the start."""
    for module, client in CLIENTS:
        asks = ("left_asks", "right_asks")
        expect("ready", ready(client), {"m": 2, "e": 2, **dict.fromkeys((*WORKS, *asks), 1)})
        for name in WORKS:
            works(module, client, name)
        for name in ("m", "e"):
            refused(module, client, name)


def asked_for():
    """Loads and unloads affect all models of a name, also composing models, which are in the same repository."""
    for module, client in CLIENTS:
        serves = {"only_left": 1, "left_asks": 1, "right_asks": 1}
        for name in ("left_asks", "right_asks"):
            client.load_model(name)
        expect("at first", ready(client), serves)
        expect("the only one", told(module, client, "only_left"), 10)

        client.load_model("m")
        expect("both", ready(client), {**serves, "m": 2})
        refused(module, client, "m")
        client.unload_model("m")
        until("m is unloaded", lambda c=client, s=serves: ready(c) == s)
        for _, each in CLIENTS:
            expect("m", told(module, client, "m"), "Identifier of model 'm' is not found in global map")
            assert not each.is_model_ready("m")

        # A model loaded by an ensemble of left does not replace right's own model.
        client.load_model("left_e")
        expect("an ensemble", ready(client), {**serves, "m": 2, "left_e": 1})
        works(module, client, "left_e")
        refused(module, client, "m")
        client.load_model("right_nested")
        expect("another", ready(client), {**serves, "m": 2, "e": 2, "left_e": 1, "right_nested": 1})
        works(module, client, "right_nested")
        works(module, client, "left_e")
        client.load_model("left_beyond")
        works(module, client, "left_beyond")
        works(module, client, "only_right")

        client.unload_model("m")
        until("what needs m has gone", lambda c=client, s=serves: ready(c) == {**s, "left_beyond": 1, "only_right": 1})
        for name in ("left_e", "right_nested"):
            expect(name, told(module, client, name), f"Request for unknown model: '{name}' has no available versions")
        for name in ("left_e", "right_nested", "e", "left_beyond", "only_right", "left_asks", "right_asks"):
            client.unload_model(name)
        until("all but one are unloaded", lambda c=client: ready(c) == {"only_left": 1})


def without():
    """A server without namespaces does not serve names that are in both repositories."""
    for module, client in CLIENTS:
        expect("in one", ready(client), dict.fromkeys(("left_asks", "right_asks", *LONE), 1))
        for name in LONE:
            works(module, client, name)
        for name in ("m", "e", "left_e", "right_nested"):
            expect(name, told(module, client, name), f"Request for unknown model: '{name}' is not found")


globals()[STORY]()
