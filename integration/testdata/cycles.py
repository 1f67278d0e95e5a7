"""Makes models call each other, also in cycles, and expects an answer each time.

cycles.py <http host:port> <gRPC host:port> <directory>
"""

import concurrent.futures
import json
import os
import sys
import threading

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC, DIRECTORY = sys.argv[1:4]
LIMIT = 60  # seconds for each answer


def refused(model, cycle, late=False):
    """The error of a call that closes a cycle: at once, or after it has been accepted."""
    head = "" if late else f"Model {model} - Error when running inference: "
    return f"error: {head}Model '{model}' cannot be called: every instance of it waits for this call ({cycle})"


def ask(plan):
    """Sends a plan to its model by gRPC and returns the answer."""
    with grpc.InferenceServerClient(GRPC) as client:
        tensor = grpc.InferInput("IN", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([json.dumps(plan).encode()], dtype=np.object_))
        answer = client.infer(plan["model"], [tensor], client_timeout=LIMIT)
    return json.loads(answer.as_numpy("OUT")[0])


def call(model, *calls, **more):
    return {"model": model, "calls": list(calls), **more}


def together(name, *plans):
    """Sends several plans at once; each has begun before any continues."""
    directory = os.path.join(DIRECTORY, name)
    for i, plan in enumerate(plans):
        plan["meet"] = [directory, str(i), len(plans)]
    with concurrent.futures.ThreadPoolExecutor(len(plans)) as pool:
        return list(pool.map(ask, plans))


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def single():
    expect("no call", ask(call("a")), "a")
    expect("a chain", ask(call("a", call("b", call("c", call("d"))))), {"a": [{"b": [{"c": ["d"]}]}]})
    expect("itself", ask(call("a", call("a"))), {"a": [refused("a", "a → a")]})
    expect("itself, a free instance", ask(call("two", call("two"))), {"two": ["two"]})
    expect("itself, no other free instance", ask(call("two", call("two", call("two")))),
           {"two": [{"two": [refused("two", "two → two")]}]})
    expect("a circle of two", ask(call("a", call("b", call("a")))), {"a": [{"b": [refused("a", "a → b → a")]}]})
    expect("a circle of four", ask(call("a", call("b", call("c", call("d", call("a")))))),
           {"a": [{"b": [{"c": [{"d": [refused("a", "a → b → c → d → a")]}]}]}]})
    for how in ("in turn", "threads", "gather"):
        expect(f"a diamond, {how}", ask(call("a", call("b", call("d")), call("c", call("d")), how=how)),
               {"a": [{"b": ["d"]}, {"c": ["d"]}]})
        expect(f"many of one, {how}", ask(call("a", *[call("b")] * 20, how=how)), {"a": ["b"] * 20})
        # Whether a thread works for the request is a guess, so the cycle is found only after a pause without progress.
        itself = refused("a", "a → a", late=how == "threads")
        expect(f"one of many, {how}", ask(call("a", call("b"), call("a"), call("c"), how=how)), {"a": ["b", itself, "c"]})


def several():
    """Two clients whose requests need each other's models."""
    for round in range(5):
        got = together(f"two-{round}", call("two", call("two")), call("two", call("two")))
        got.sort(key=json.dumps)
        expect("two that call their model", got, [{"two": [refused("two", "two → two")]}, {"two": ["two"]}])
        got = together(f"crossed-{round}", call("a", call("b")), call("b", call("a")))
        assert got in (
            [{"a": [refused("b", "b → a → b")]}, {"b": ["a"]}],
            [{"a": ["b"]}, {"b": [refused("a", "a → b → a")]}],
        ), f"two that call each other's model: got {got}"


def hammered():
    """The same while others keep the models busy: no call is wrongly rejected."""
    stop = threading.Event()

    def hammer(model):
        count = 0
        with http.InferenceServerClient(HTTP, network_timeout=LIMIT) as client:
            tensor = http.InferInput("IN", [1], "BYTES")
            plan = call(model, call("d")) if model != "d" else call(model)
            tensor.set_data_from_numpy(np.array([json.dumps(plan).encode()], dtype=np.object_))
            while not stop.is_set() or count == 0:
                got = json.loads(client.infer(model, [tensor]).as_numpy("OUT")[0])
                expect("a bystander", got, {model: ["d"]} if model != "d" else "d")
                count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        bystanders = [pool.submit(hammer, model) for model in ("a", "b", "c", "d", "a", "two")]
        try:
            for _ in range(10):
                expect("itself", ask(call("a", call("a"))), {"a": [refused("a", "a → a")]})
                expect("a circle", ask(call("a", call("b", call("c", call("a"))))),
                       {"a": [{"b": [{"c": [refused("a", "a → b → c → a")]}]}]})
                expect("a diamond", ask(call("a", call("b", call("d")), call("c", call("d")), how="gather")),
                       {"a": [{"b": ["d"]}, {"c": ["d"]}]})
        finally:
            stop.set()
        assert all(b.result() > 0 for b in bystanders)


single()
several()
hammered()
