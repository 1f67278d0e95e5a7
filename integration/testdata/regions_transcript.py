"""Prints a server's replies about a client's shared memory, for comparison with another server.

regions_transcript.py <http host:port> <gRPC host:port> <prefix of keys>
"""

import http.client
import itertools
import json
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

HTTP, GRPC, PREFIX = sys.argv[1:4]
KEY = PREFIX + "region"


def ask(method, path, body=None):
    connection = http.client.HTTPConnection(HTTP, timeout=60)
    text = json.dumps(body) if body is not None and not isinstance(body, str) else body
    connection.request(method, "/v2/" + path, text)
    reply = connection.getresponse()
    print(method, path, text, "->", reply.status, reply.getheader("Content-Type"), reply.read().decode())


def call(what, function, *arguments, **keywords):
    try:
        print(what, "->", function(*arguments, **keywords))
    except InferenceServerException as error:
        print(what, "->", error.status(), error.message())


region = shm.create_shared_memory_region("r", KEY, 8192, create_only=True)
try:
    shm.set_shared_memory_region(region, [np.arange(2048, dtype=np.float32)])
    for kind in "system", "cuda":
        ask("GET", f"{kind}sharedmemory/status")
        ask("GET", f"{kind}sharedmemory/region/r/status")
        ask("POST", f"{kind}sharedmemory/register", {})
        ask("POST", f"{kind}sharedmemory/region/r/register", "")
        ask("POST", f"{kind}sharedmemory/region/r/register", [])
        ask("POST", f"{kind}sharedmemory/unregister")
        ask("POST", f"{kind}sharedmemory/region/r/unregister", "junk")
        ask("PUT", f"{kind}sharedmemory/region/r/unregister")
    whole = {"key": "/" + KEY, "byte_size": 8192}
    for change in (
        {"key": 1}, {"key": None}, {"byte_size": -1}, {"byte_size": "a"}, {"byte_size": 1.5}, {"offset": "a"}, {"offset": -1},
        {"key": "/none-of-these"}, {"byte_size": 8193}, {"byte_size": 0}, {"offset": 5, "byte_size": 10}, {"offset": 8192, "byte_size": 1},
    ):
        ask("POST", "systemsharedmemory/region/r/register", whole | change)
    ask("POST", "systemsharedmemory/region/r/register", {"byte_size": 1})
    ask("POST", "systemsharedmemory/region/r/register", {"key": KEY})
    ask("POST", "systemsharedmemory/region/r/register", whole)
    ask("POST", "systemsharedmemory/region/r/register", whole)
    ask("GET", "systemsharedmemory/status")
    ask("GET", "systemsharedmemory/region/r/status")
    ask("GET", "cudasharedmemory/region/r/status")
    ask("POST", "cudasharedmemory/region/r/unregister")
    ask("POST", "cudasharedmemory/unregister")
    ask("GET", "systemsharedmemory/status")

    client = grpc.InferenceServerClient(GRPC)
    call("status", client.get_system_shared_memory_status)
    call("status of one", client.get_system_shared_memory_status, "r")
    call("status of none", client.get_system_shared_memory_status, "none")
    call("status of CUDA", client.get_cuda_shared_memory_status, "r")
    call("register", client.register_system_shared_memory, "r", KEY, 64)
    call("register too much", client.register_system_shared_memory, "s", KEY, 8193)

    places = [
        {"shared_memory_region": "r", "shared_memory_byte_size": 16}, {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 4096},
        {"shared_memory_region": "r", "shared_memory_byte_size": 12}, {"shared_memory_region": "r", "shared_memory_byte_size": 20},
        {"shared_memory_region": "r", "shared_memory_offset": 8192, "shared_memory_byte_size": 16}, {"shared_memory_region": "r", "shared_memory_offset": 8188, "shared_memory_byte_size": 16},
        {"shared_memory_region": "none", "shared_memory_byte_size": 16}, {"shared_memory_region": 5, "shared_memory_byte_size": 16},
        {"shared_memory_region": "r", "shared_memory_byte_size": "16"},
    ]
    forms = [None, *places, places[1] | {"classification": 0}, places[1] | {"binary_data": True}, places[1] | {"binary_data": False}]
    for source, target in itertools.product(places, forms):
        given = {"name": "INPUT", "datatype": "FP32", "shape": [4], "parameters": source}
        wanted = [] if target is None else [{"name": "OUTPUT", "parameters": target}]
        ask("POST", "models/numbers/infer", {"inputs": [given], "outputs": wanted})
        if not all(isinstance(p.get("shared_memory_region"), str) and isinstance(p["shared_memory_byte_size"], int) for p in (source, target or places[0])):
            continue
        given = grpc.InferInput("INPUT", [4], "FP32")
        given.set_shared_memory(source["shared_memory_region"], source["shared_memory_byte_size"], source.get("shared_memory_offset", 0))
        wanted = None
        if target is not None:
            wanted = [grpc.InferRequestedOutput("OUTPUT")]
            wanted[0].set_shared_memory(target["shared_memory_region"], target["shared_memory_byte_size"], target.get("shared_memory_offset", 0))
        call(f"gRPC {source} {target}", lambda i=given, o=wanted: client.infer("numbers", [i], outputs=o).get_response())
    print(shm.get_contents_as_numpy(region, np.float32, [2048]).tolist())
    ask("POST", "systemsharedmemory/unregister")
    ask("GET", "systemsharedmemory/status")
finally:
    shm.destroy_shared_memory_region(region)
