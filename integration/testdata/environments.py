"""Asks models in different environments for their Python and numpy versions, over HTTP and gRPC.

environments.py <http host:port> <gRPC host:port> <model>=<python>,<numpy>…
"""

import json
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC = sys.argv[1:3]

for module, address in ((http, HTTP), (grpc, GRPC)):
    client = module.InferenceServerClient(address)
    for argument in sys.argv[3:]:
        model, _, versions = argument.partition("=")
        python, numpy = versions.split(",")
        given = module.InferInput("IN", [1], "FP32")
        given.set_data_from_numpy(np.zeros(1, np.float32))
        got = json.loads(client.infer(model, [given]).as_numpy("OUT")[0])
        assert got["python"] == python, f"{model}: Python {got['python']}, want {python}"
        assert got["numpy"] == numpy, f"{model}: numpy {got['numpy']}, want {numpy}"
        completed = client.get_model_config(model, **({"as_json": True} if module is grpc else {}))
        completed = completed.get("config", completed)
        assert completed["output"][1]["name"] == "PYTHON" + python, f"{model}: its config was completed as {completed['output']}"
    client.close()
