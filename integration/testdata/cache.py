"""Queries the models of cache_test.go, whose answers show which execution produced them.

cache.py <http host:port> <gRPC host:port> <metrics port> [load]
"""

import json
import sys
import threading
import time
import urllib.request

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, METRICS = sys.argv[1:4]
PATIENCE = 60
web = http.InferenceServerClient(HTTP, network_timeout=PATIENCE)
rpc = grpc.InferenceServerClient(GRPC)


def tensor(module, name, array):
    kind = {"int32": "INT32", "float32": "FP32"}[array.dtype.name]
    t = module.InferInput(name, list(array.shape), kind)
    t.set_data_from_numpy(array)
    return t


def ask(a, b=None, outputs=None, client=web, model="kept", **more):
    module = http if client is web else grpc
    inputs = [tensor(module, "A", np.array(a, np.int32))]
    if b is not None:
        inputs.insert(0, tensor(module, "B", np.asarray(b, np.float32)))
    if outputs is not None:
        outputs = [module.InferRequestedOutput(o) for o in outputs]
    return client.infer(model, inputs, outputs=outputs, **more)


def made(result):
    """The execution that produced an answer, and its content."""
    text = result.as_numpy("TEXT")
    assert text is not None
    seen = json.loads(text[0])
    return seen["pid"], seen["executions"]


def names(result):
    response = result.get_response()
    outputs = response["outputs"] if isinstance(response, dict) else response.outputs
    return [o["name"] if isinstance(o, dict) else o.name for o in outputs]


def samples():
    with urllib.request.urlopen(f"http://{HTTP.split(':')[0]}:{METRICS}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("nv_cache_")}


def want(got, expected, what):
    assert got == expected, f"{what}: got {got!r}, want {expected!r}"


def until(true, what):
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"{what}: got {samples()}"
        time.sleep(0.01)


def stories():
    first = ask([1, 2], request_id="first")
    again = ask([1, 2], request_id="again")
    want(made(again), made(first), "the same request")
    want(again.get_response()["id"], "again", "id of a hit")
    want(again.get_response()["model_version"], "1", "version of a hit")
    want(again.as_numpy("X").tolist(), first.as_numpy("X").tolist(), "X of a hit")
    want(made(ask([1, 2], client=rpc)), made(first), "over gRPC")
    want(sorted(names(ask([1, 2], client=rpc))), ["SHAPE", "TEXT", "X"], "all outputs")

    part = ask([1, 2], outputs=["TEXT"])
    want((made(part), names(part)), (made(first), ["TEXT"]), "one output of all")
    part = ask([1, 2], outputs=["SHAPE", "TEXT"], client=rpc)
    want((made(part), sorted(names(part))), (made(first), ["SHAPE", "TEXT"]), "two outputs of all")

    alone = ask([3], outputs=["TEXT"])
    want(made(ask([3], outputs=["TEXT"])), made(alone), "one output again")
    whole = ask([3])
    assert made(whole) != made(alone), "all outputs were answered with one"
    want(sorted(names(whole)), ["SHAPE", "TEXT", "X"], "all outputs after one")

    square = ask([5], b=np.zeros((2, 3)))
    flat = ask([5], b=np.zeros((3, 2)))
    want(
        (square.as_numpy("SHAPE").tolist(), flat.as_numpy("SHAPE").tolist()),
        ([2, 3], [3, 2]),
        "the same bytes in another shape",
    )
    want(ask([5]).as_numpy("SHAPE").tolist(), [-1, -1], "without the optional input")
    want(made(ask([5], b=np.zeros((2, 3)))), made(square), "the first shape again")

    hot, cold = (ask([6], parameters={"temperature": t}) for t in ("hot", "cold"))
    want(json.loads(cold.as_numpy("TEXT")[0])["parameters"], {"temperature": "cold"}, "another parameter")
    want(made(ask([6], parameters={"temperature": "hot"})), made(hot), "the same parameter")
    want(made(ask([6], parameters={"temperature": "hot"}, priority=1, timeout=100000)), made(hot), "another time-out")

    for _ in range(2):
        try:
            ask([-1])
            raise AssertionError("an error was answered with something else")
        except InferenceServerException as error:
            want(error.message(), "bad one", "the error")

    # Models that call: they may write to their answer, and no other reader sees the change.
    want(ask([7], model="keeper").as_numpy("X").tolist(), [8] * 1000, "the caller's answer")
    want(ask([7]).as_numpy("X").tolist(), [7] * 1000, "the answer that was kept")
    large = ask(list(range(100)), model="keeper").as_numpy("X")
    want(large.tolist(), [i + 1 for i in range(100) for _ in range(1000)], "the caller's large answer")
    want(
        ask(list(range(100))).as_numpy("X").tolist(),
        [i for i in range(100) for _ in range(1000)],
        "the large answer that was kept",
    )

    # In 4,000,000 bytes: nine answers of 400,000 fit, including the last one used.
    before = samples()
    for i in range(100, 130):
        assert ask([i] * 100).as_numpy("X").tolist() == [i] * 100000
        ask(list(range(100)), client=rpc)
    after = samples()
    want(after["nv_cache_num_hits"] - before["nv_cache_num_hits"], 30, "hits of what is used")
    assert after["nv_cache_num_evictions"] > 20 and 0.8 < after["nv_cache_util"] <= 1, after
    want(after["nv_cache_num_lookups"], after["nv_cache_num_hits"] + after["nv_cache_num_misses"], "lookups")

    # The model of the next load counts as another model. An unload may take effect a little later.
    last = made(ask([200]))
    web.unload_model("kept")
    web.load_model("kept")
    assert made(ask([200])) != last, "an answer of the load before was given"
    until(lambda: samples()["nv_cache_num_entries"] == 1, "one entry after a load")
    web.unload_model("kept")
    until(lambda: samples()["nv_cache_num_entries"] == 0 and samples()["nv_cache_util"] == 0, "nothing after an unload")


def load():
    failures = []

    def worker(seed):
        random = np.random.default_rng(seed)
        client = (
            grpc.InferenceServerClient(GRPC) if seed % 2 else http.InferenceServerClient(HTTP, network_timeout=PATIENCE)
        )
        module = grpc if seed % 2 else http
        try:
            for _ in range(60):
                i = int(random.integers(8))
                x = client.infer("kept", [tensor(module, "A", np.full(100, i, np.int32))]).as_numpy("X")
                if x.shape != (100000,) or not (x == i).all():
                    failures.append((seed, i, x.shape, np.unique(x).tolist()))
        except Exception as error:
            failures.append((seed, repr(error)))

    threads = [threading.Thread(target=worker, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    s = samples()
    assert s["nv_cache_num_hits"] > 0 and s["nv_cache_num_evictions"] > 0, s
    want(s["nv_cache_num_lookups"], 480, "lookups")


load() if sys.argv[4:] == ["load"] else stories()
