"""Queries models with tritonclient: lifecycle.py <http host:port> <gRPC host:port> <question>, answered in JSON.

ready NAME ...   for each name: is_model_ready over HTTP and gRPC; "" is the server
config NAME ...  for each name: the config over HTTP and gRPC
"""

import json
import sys

import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC, QUESTION = sys.argv[1:4]
clients = http.InferenceServerClient(HTTP, network_timeout=60), grpc.InferenceServerClient(GRPC)


def ready(name):
    return [c.is_model_ready(name) if name else c.is_server_ready() for c in clients]


def config(name):
    first, second = clients
    return [first.get_model_config(name), second.get_model_config(name, as_json=True)["config"]]


answer = {"ready": ready, "config": config}[QUESTION]
print(json.dumps({name: answer(name) for name in sys.argv[4:]}))
