"""Loads models with configs and files in the request.

overrides.py <http host:port> <gRPC host:port> <file of model disk>

The server is in explicit control mode; its repository has only the model "disk", which is loaded. The file may be
touched. Exits with a traceback if a check fails.
"""

import json
import os
import pathlib
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC, FILE = sys.argv[1:4]
CLIENTS = {
    "http": (http, http.InferenceServerClient(HTTP, network_timeout=60)),
    "grpc": (grpc, grpc.InferenceServerClient(GRPC)),
}
SOURCE = pathlib.Path(FILE).read_bytes()


def configuration(tag, **more):
    config = {
        "backend": "python",
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}],
        "parameters": {"tag": {"string_value": tag}},
    }
    return json.dumps({**config, **more})


def told(name, version=""):
    """The model's report about itself."""
    tensor = http.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.zeros(1, np.int32))
    answer = CLIENTS["http"][1].infer(name, [tensor], model_version=version)
    return json.loads(answer.as_numpy("OUT")[0])


def index():
    return {e["name"]: e.get("state") for e in CLIENTS["http"][1].get_model_repository_index()}


def refused(client, name, want, **parameters):
    try:
        client.load_model(name, **parameters)
    except Exception as error:
        assert want == error.message(), (name, parameters.keys(), error.message())
    else:
        raise AssertionError((name, parameters.keys()))


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(directory):
    until(lambda: not os.path.exists(directory))


def unload(client, name):
    client.unload_model(name)
    until(lambda: not client.is_model_ready(name))


def not_polled(name):
    return f"failed to load '{name}', failed to poll from model repository"


def configs(client):
    client.load_model("disk")
    assert told("disk")["tag"] == "disk"
    client.load_model("disk", config=configuration("first"))
    first = told("disk")
    assert first["tag"] == "first" and first["repository"] == os.path.dirname(os.path.dirname(FILE)), first
    config = CLIENTS["http"][1].get_model_config("disk")
    assert config["parameters"]["tag"]["string_value"] == "first" and config["name"] == "disk", config
    client.load_model("disk")
    assert told("disk")["tag"] == "first"
    client.load_model("disk", config=configuration("second").replace("TYPE_INT32", "type_int32"))
    assert told("disk")["tag"] == "second"
    for bad in "{", "", '{"nope": 1}', "[]", configuration("x", name="other"), configuration("x", max_batch_size=-1):
        refused(client, "disk", not_polled("disk"), config=bad)
    refused(client, "none", not_polled("none"), config=configuration("x"))
    assert told("disk")["tag"] == "second"
    later = os.stat(FILE).st_mtime + 1  # file times are coarse
    os.utime(FILE, (later, later))
    client.load_model("disk")
    assert told("disk")["tag"] == "disk"
    client.load_model("disk", config=configuration("third"))
    unload(client, "disk")
    client.load_model("disk")
    assert told("disk")["tag"] == "disk"


def files(client, name):
    uploaded = {"file:1/model.py": SOURCE, "file:1/sub/data": b"\x00\xff", "file:top": b"", "file:config.pbtxt": b"{"}
    before = index()
    client.load_model(name, config=configuration("fresh"), files=uploaded)
    assert index() == before, index()
    fresh = told(name)
    repository = fresh["repository"]
    assert fresh["files"] == ["1/model.py", "1/sub/data", "config.pbtxt", "top"], fresh
    assert fresh["directory"] == repository + "/1" and fresh["file"] == repository + "/1/model.py", fresh
    assert fresh["mode"] == 0o700 and fresh["tag"] == "fresh" and fresh["data"] == "00ff", fresh
    assert client.is_model_ready(name) and client.is_server_ready()

    # A plain load does not find the model in the repository; the loaded one keeps serving.
    refused(client, name, not_polled(name))
    refused(client, name, not_polled(name), config=configuration("x"))
    refused(client, name, not_polled(name), files={"file:1/model.py": SOURCE})
    for path in "../x", "1/../../x", "", "1/", ".", "1/model.py/x":
        bad = {"file:1/model.py": SOURCE, "file:" + path: b"x"}
        refused(client, name, not_polled(name), config=configuration("x"), files=bad)
    assert told(name) == fresh

    # Other files replace them, with more versions and a leading slash.
    more = {"file:/1/model.py": SOURCE, "file:5/../3/model.py": SOURCE, "file:02/model.py": SOURCE, "file:x/y": b""}
    client.load_model(name, config=configuration("more", version_policy={"all": {}}), files=more)
    assert told(name)["directory"] == told(name, "1")["repository"] + "/3", told(name)
    assert told(name)["repository"] != repository
    gone(repository)
    repository = told(name)["repository"]
    try:
        client.load_model(name, config=configuration("x"), files={"file:1/model.py": b"raise ValueError('no')"})
    except Exception as error:
        text = error.message()
        begin = f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Internal: ValueError: no"
        assert text.startswith(begin + "\n\nAt:\n  ") and text.endswith(";\n"), text
        assert "/1/model.py(1): <module>" in text, text
    else:
        raise AssertionError("a module that raises was loaded")
    assert told(name)["repository"] == repository
    unload(client, name)
    gone(repository)
    refused(client, name, not_polled(name))

    # A model of the repository is served from the uploaded files until it is loaded without them.
    client.load_model("disk", config=configuration("hidden"), files={"file:1/model.py": SOURCE})
    assert told("disk")["tag"] == "hidden" and index() == before, (told("disk"), index())
    client.load_model("disk")
    assert told("disk")["tag"] == "disk"


for protocol, (_, each) in CLIENTS.items():
    configs(each)
    files(each, "fresh_" + protocol)
NONE = "load failed for model 'none': at least one version must be available under the version policy of model 'none'\n"
for _, each in CLIENTS.values():
    refused(each, "none", NONE, config=configuration("x"), files={"file:model.py": SOURCE})
