"""Loads and unloads models and ensembles of them: models_life.py <http host:port> <gRPC host:port> <repository>.

The server is in explicit control mode with "--load-model=first". The repository has the models "first", "second" and
"third", which return the content of the file "generation" of their version at their load, and the ensemble "both" of
the first two. Exits with a traceback if a check fails.
"""

import pathlib
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC, ROOT = sys.argv[1:4]
FIRST = http.InferenceServerClient(HTTP, network_timeout=60, concurrency=8)
SECOND = grpc.InferenceServerClient(GRPC)
BOTH = ((http, FIRST), (grpc, SECOND))


def index(client):
    if client is FIRST:
        return client.get_model_repository_index()
    return client.get_model_repository_index(as_json=True)["models"]


def seen(client):
    return {(e["name"], e.get("version", "")): (e.get("state", ""), e.get("reason", "")) for e in index(client)}


def states():
    """The state as seen by both clients; it may change between the two."""
    until(lambda: seen(FIRST) == seen(SECOND))
    return {name: state for (name, _), (state, _) in seen(FIRST).items()}


def told(name, version="", module=http, client=FIRST):
    tensor = module.InferInput("IN", [1], "INT64")
    tensor.set_data_from_numpy(np.zeros(1, np.int64))
    return int(client.infer(name, [tensor], model_version=version).as_numpy("OUT")[0])


def fails(want, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except Exception as error:
        assert error.message() == want, error.message()
    else:
        raise AssertionError(want)


def write(name, generation, version="1"):
    (pathlib.Path(ROOT) / name / version / "generation").write_text(str(generation))


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def eventually(**want):
    until(lambda: {**states(), **want} == states())


assert states() == {"both": "", "first": "READY", "second": "", "third": ""}, states()

# Loading an unchanged model does nothing; loading a changed one keeps it available.
for generation, (module, client) in enumerate(BOTH, 1):
    client.load_model("first")
    assert told("first", module=module, client=client) == generation - 1
    write("first", generation)
    client.load_model("first")
    assert told("first", module=module, client=client) == generation

# An ensemble loads its models, and unloads them with itself.
SECOND.load_model("both")
assert states() == {"both": "READY", "first": "READY", "second": "READY", "third": ""}, states()
assert told("both") == 0
for module, client in BOTH:
    client.unload_model("second")
    eventually(both="UNAVAILABLE", second="UNAVAILABLE")
    both = {"module": module, "client": client}
    fails("Request for unknown model: 'both' has no available versions", told, "both", **both)
    fails("Request for unknown model: 'both' version 1 is not at ready state", told, "both", "1", **both)
    client.load_model("second")
    assert told("both", module=module, client=client) == 0
for _, client in BOTH:
    client.unload_model("both", unload_dependents=True)
    eventually(both="UNAVAILABLE", first="READY")  # the first was requested by name
    assert told("first") == 2
    client.load_model("both")
write("second", 7)
FIRST.load_model("second")
assert told("both") == 7

# A model whose reload fails keeps serving, and the error is returned.
source = pathlib.Path(ROOT) / "first" / "1" / "model.py"
good = source.read_text()
source.write_text("raise RuntimeError('broken')")
for _, client in BOTH:
    try:
        client.load_model("first")
    except Exception as error:
        want = "load failed for model 'first': version 1 is at UNAVAILABLE state: Internal: RuntimeError: broken"
        assert error.message().startswith(want), error.message()
    else:
        raise AssertionError("the load of a broken model is a success")
    assert told("first") == 2 and states()["first"] == "READY"
source.write_text(good)

# Requests are answered in the meantime, and unrelated models are loaded.
write("third", -1)  # takes long
slow = threading.Thread(target=SECOND.load_model, args=("third",), daemon=True)
slow.start()
until(lambda: states()["third"] == "LOADING")
write("first", 3)
FIRST.load_model("first")
assert told("first") == 3 and states()["third"] == "LOADING"
fails("Request for unknown model: 'third' version 1 is not at ready state", told, "third", "1")
(pathlib.Path(ROOT) / "third" / "go").write_text("")
slow.join()
assert told("third") == -1
