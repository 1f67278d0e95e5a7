"""Makes models call models with sequences: sequence_calls.py <http host:port> <gRPC host:port>.

The models "exec" and "async_exec" make the requested calls, one by one or with sequences in parallel, and return the
responses.
"""

import json
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC = sys.argv[1:3]
LIMIT = 120  # seconds for each answer
START, END = 1, 2
CLIENTS = {
    http: http.InferenceServerClient(HTTP, network_timeout=LIMIT),
    grpc: grpc.InferenceServerClient(GRPC),
}
PREFIX = "Model {} - Error when running inference: "


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def ask(module, caller, model, sequences):
    """Makes a model perform the calls; returns the responses by sequence."""
    plan = {"model": model, "batched": BATCHED[model], "sequences": sequences}
    tensor = module.InferInput("CALLS", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([json.dumps(plan).encode()], np.object_))
    more = {"client_timeout": LIMIT} if module is grpc else {}
    return json.loads(CLIENTS[module].infer(caller, [tensor], **more).as_numpy("TOLD")[0])


def tell(module, model, number, value, **flags):
    """Sends one request like a client and returns the total."""
    shape = [1, 1] if BATCHED[model] else [1]
    tensor = module.InferInput("VALUE", shape, "INT32")
    tensor.set_data_from_numpy(np.full(shape, value, np.int32))
    answer = CLIENTS[module].infer(model, [tensor], sequence_id=number, **flags)
    return int(answer.as_numpy("TOTAL").reshape(-1)[0])


# Which models have a batch dimension, and how to make ids of the type that they accept.
BATCHED = {"direct": True, "oldest": True, "texts": False, "oldest_texts": True}
TEXTS = ("texts", "oldest_texts")


def number_of(model, n, above=1 << 40):
    return f"Gespräch {n}" if model in TEXTS else above + n


def flags_of(n, count):
    return (START if n == 0 else 0) | (END if n == count - 1 else 0)


def totals(module, caller, model, count, base):
    """Several sequences at once: each has its own total, and the model sees the ids."""
    lengths = [1 + i % 4 for i in range(count)]
    sequences = [
        [number_of(model, base + i, 1 << 63), [[10 * i + n, flags_of(n, lengths[i])] for n in range(lengths[i])]]
        for i in range(count)
    ]
    told = ask(module, caller, model, sequences)
    assert isinstance(told, list), told
    for (number, calls), answers in zip(sequences, told):
        total = 0
        for (value, flags), got in zip(calls, answers):
            assert "error" not in got, got
            total += value
            what = f"{model} called by {caller}, sequence {number}"
            expect(what, [got["total"], got["id"], got["flags"]], [total, number, flags])
            # The control tensors agree. Ids of 64 bits are shown as signed if the model declares them so.
            shown = number - (1 << 64) if model == "oldest" else number
            expect(f"{what}: control", got["corrid"][2], shown)
            begins, ends = (got[k][2] == got["ready"][2] for k in ("start", "end"))
            expect(f"{what}: flags", [begins, ends], [bool(flags & START), bool(flags & END)])


def in_turns(module, caller, model):
    """A sequence does not depend on the sender: a client and a model continue the same total."""
    number = number_of(model, 900)
    expect("a client begins", tell(module, model, number, 1, sequence_start=True), 1)
    ((got,),) = ask(module, caller, model, [[number, [[2, 0]]]])
    expect("a model goes on", got.get("total"), 3)
    expect("a client goes on", tell(module, model, number, 4), 7)
    ((got,),) = ask(module, caller, model, [[number, [[8, END]]]])
    expect("a model ends", got.get("total"), 15)
    ((got, more, last),) = ask(module, caller, model, [[number, [[16, START], [32, 0], [0, 0]]]])
    expect("a model begins", [got.get("total"), more.get("total"), last.get("total")], [16, 48, 48])
    expect("a client ends", tell(module, model, number, 1, sequence_end=True), 49)


def refusals(module, caller, model):
    """A model gets an error response for calls that would be rejected for a client, and continues."""
    number, none = number_of(model, 950), "" if model in TEXTS else 0
    flags = (
        f"inference request for sequence {number} to model '{model}' must specify the START flag on the first request "
        "of the sequence"
    )
    told = ask(module, caller, model, [[number, [[1, 0], [5, START], [6, END], [1, 0]]]])
    assert isinstance(told, list), told
    ((first, second, third, fourth),) = told
    expect("no start", first.get("error"), PREFIX.format(model) + flags)
    expect("then started", [second.get("total"), third.get("total")], [5, 11])
    expect("and ended", fourth.get("error"), PREFIX.format(model) + flags)
    ((got,),) = ask(module, caller, model, [[none, [[1, START]]]])
    want = f"inference request to model '{model}' must specify a non-zero or non-empty correlation ID"
    expect("no id", got.get("error"), PREFIX.format(model) + want)
    got = ask(module, caller, model, [[1.5, [[1, START]]]])
    expect("no number", got, {"raised": "TritonModelException: Correlation ID must be integer or string"})


def wrong_kind(module, caller, model):
    """An id is a number or a string, according to the model; Triton would reinterpret one as the other."""
    other, has, wants = (7, "UINT64", "BYTES") if model in TEXTS else ("seven", "BYTES", "UINT64")
    if model == "oldest":
        wants = "INT64"
    ((got,),) = ask(module, caller, model, [[other, [[1, START | END]]]])
    want = f"sequence batching control 'CORRID' data-type is '{has}', but model '{model}' expects '{wants}'"
    assert want in got.get("error", ""), f"{model}: got {got}, want {want}"


def keeps(module, caller, model, count, base):
    """State that the server keeps for a sequence is returned to calls as well."""
    sequences = [[f"{base}-{i}", [[i + 1, flags_of(n, 5)] for n in range(5)]] for i in range(count)]
    for i, answers in enumerate(ask(module, caller, model, sequences)):
        expect(f"{model}: totals", [a.get("total") for a in answers], [100 + (i + 1) * (n + 1) for n in range(5)])


base = 0
for module in CLIENTS:
    for caller in ("exec", "async_exec"):
        for model in ("direct", "oldest", "texts", "oldest_texts"):
            # Concurrently, more sequences can be requested than there are slots: others wait until one ends.
            slots = {"direct": 4, "texts": 2, "oldest": 16, "oldest_texts": 8}[model]
            for count in (1, slots, 3 * slots) if caller == "async_exec" else (1, slots):
                base += 100
                totals(module, caller, model, count, base)
            in_turns(module, caller, model)
            refusals(module, caller, model)
            wrong_kind(module, caller, model)
        for model, count in (("keeper", 2), ("keeper_direct", 4), ("keeper_oldest", 12)):
            BATCHED[model] = model != "keeper"
            base += 100
            keeps(module, caller, model, count, base)
