"""Makes decoupled models call others after their execute has returned.

background.py <http host:port> <gRPC host:port>
"""

import json
import queue
import sys
import time

import numpy as np
import tritonclient.grpc as grpc

GRPC = sys.argv[2]
LIMIT = 60  # seconds for each answer


def refused(model, why):
    return f"error: Model {model} - Error when running inference: Model '{model}' cannot be called: {why}"


def ask(plan):
    """Sends a plan to its model in a stream and returns the answer."""
    came = queue.Queue()
    with grpc.InferenceServerClient(GRPC) as client:
        tensor = grpc.InferInput("IN", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([json.dumps(plan).encode()], dtype=np.object_))
        client.start_stream(lambda result, error: came.put((result, error)))
        client.async_stream_infer(plan["model"], [tensor])
        result, error = came.get(timeout=LIMIT)
        client.stop_stream()
    assert error is None, error
    return json.loads(result.as_numpy("OUT")[0])


def call(model, *calls):
    return {"model": model, "calls": list(calls), "stream": model != "a"}


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def chain(model, depth, end):
    got = end
    for _ in range(depth):
        got = {model: [got]}
    return got


def plan_of(model, depth):
    plan = call(model)
    for _ in range(depth):
        plan = call(model, plan)
    return plan


# One instance is enough for any depth. The request of a thread is unknown, so calls from threads have no depth.
for model, depth in (("threads", 1), ("threads", 70), ("coroutines", 1), ("coroutines", 64)):
    expect(f"{model}, {depth} deep", ask(plan_of(model, depth)), chain(model, depth, model))
names = " → ".join(["coroutines"] * 4)
expect("coroutines, 65 deep", ask(plan_of("coroutines", 65)),
       chain("coroutines", 65, refused("coroutines", f"models call each other more than 64 deep ({names} → … → {names})")))

# A client of the model that works in the background: a is free, and the call succeeds.
expect("no circle", ask(call("threads", call("a"))), {"threads": ["a"]})

# a holds its only instance while the other model works and calls it. a need not be waiting
# for that, so the rejection takes some seconds.
begin = time.monotonic()
expect("a circle", ask(call("a", call("coroutines", call("a")))),
       {"a": [{"coroutines": ["error: Model 'a' cannot be called: every instance of it waits for this call (a → coroutines → a)"]}]})
took = time.monotonic() - begin
assert took > 4, f"a circle was refused within {took} s, though it was only likely"
for model in ("threads", "coroutines"):
    expect("afterwards", ask(call("a", call(model))), {"a": [model]})
