"""Sends sequences to models that keep totals.

sequences.py <http host:port> <gRPC host:port>
"""

import concurrent.futures
import json
import queue
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC = sys.argv[1:3]
LIMIT = 60  # seconds for each answer

MUST_START = (
    "inference request for sequence {} to model '{}' must specify the START flag on the first request of the sequence"
)


def tensors(module, value, batched):
    value = np.array([value] if np.isscalar(value) else value, dtype=np.int32)
    if batched:
        value = value.reshape(1, -1)
    tensor = module.InferInput("VALUE", list(value.shape), "INT32")
    tensor.set_data_from_numpy(value)
    return [tensor]


class Sequence:
    """One sequence of a model, over one client."""

    def __init__(self, client, model, number, batched):
        self.client, self.model, self.number, self.batched = client, model, number, batched
        self.module = http if isinstance(client, http.InferenceServerClient) else grpc

    def infer(self, value, start=False, end=False, **more):
        if self.module is grpc:
            more["client_timeout"] = LIMIT
        return self.client.infer(
            self.model,
            tensors(self.module, value, self.batched),
            sequence_id=self.number,
            sequence_start=start,
            sequence_end=end,
            **more,
        )

    def total(self, value, **more):
        return int(self.infer(value, **more).as_numpy("TOTAL").reshape(-1)[0])

    def saw(self, value, **more):
        return saw(self.infer(value, **more))


def saw(answer):
    return json.loads(answer.as_numpy("SAW").reshape(-1)[0])


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def fails(what, want, call, *arguments, **more):
    try:
        got = call(*arguments, **more)
    except InferenceServerException as e:
        assert want in e.message(), f"{what}: got {e.message()}, want {want}"
        return
    raise AssertionError(f"{what}: got {got}, want an error")


def clients():
    return http.InferenceServerClient(HTTP, concurrency=8, network_timeout=LIMIT), grpc.InferenceServerClient(GRPC)


def controls():
    """All kinds and types of control tensors, with and without batch dimension."""
    h, g = clients()
    for client in (h, g):
        s = Sequence(client, "direct", 0x1_0000_0007, True)
        got = s.saw(1, start=True)
        expect(
            "start",
            [got["start"], got["end"], got["ready"]],
            [[[1, 1], "int32", 1], [[1, 1], "int32", 0], [[1, 1], "int32", 1]],
        )
        expect("corrid", got["corrid"], [[1, 1], "uint64", 0x1_0000_0007])
        expect("request", [got["id"], got["flags"]], [0x1_0000_0007, 1])
        got = s.saw(1)
        expect("middle", [got["start"][2], got["end"][2], got["ready"][2]], [0, 0, 1])
        got = s.saw(1, end=True)
        expect("end", [got["start"][2], got["end"][2], got["ready"][2]], [0, 1, 1])
        s = Sequence(client, "oldest", 0xFFFF_FFFF_FFFF_FFFF if client is h else 5, True)
        got = s.saw(1, start=True, end=True)
        expect("both", [got["start"], got["end"], got["ready"]], [[[1, 1], "bool", True]] * 3)
        expect("corrid", got["corrid"], [[1, 1], "int64", -1 if client is h else 5])
        s = Sequence(client, "texts", "grüße", False)
        got = s.saw(1, start=True)
        expect("start", [got["start"], got["end"]], [[[1], "float32", 1.5], [[1], "float32", 0.5]])
        expect("corrid", got["corrid"], [[1], "object", "grüße"])
        expect("request", got["id"], "grüße")
        expect("total", s.total(4, end=True), 5)
        fails(
            "a number",
            "sequence batching control 'CORRID' data-type is 'UINT64', but model 'texts' expects 'BYTES'",
            Sequence(client, "texts", 7, False).infer,
            1,
            start=True,
        )
        fails(
            "a text",
            "sequence batching control 'CORRID' data-type is 'BYTES', but model 'direct' expects 'UINT64'",
            Sequence(client, "direct", "x", True).infer,
            1,
            start=True,
        )


def admission():
    h, g = clients()
    for client in (h, g):
        fails(
            "no id",
            "inference request to model 'one_slot' must specify a non-zero or non-empty correlation ID",
            Sequence(client, "one_slot", 0, False).infer,
            1,
        )
        for number in (77, "seventy"):
            fails(
                "no start",
                MUST_START.format(number, "one_slot"),
                Sequence(client, "one_slot", number, False).infer,
                1,
            )
        module = Sequence(client, "", 0, False).module
        two = module.InferInput("VALUE", [2, 1], "INT32")
        two.set_data_from_numpy(np.ones((2, 1), np.int32))
        fails(
            "batch of two",
            "inference request to model 'direct' must specify batch-size 1 due to requirements of sequence batcher",
            client.infer,
            "direct",
            [two],
            sequence_id=1,
            sequence_start=True,
        )
        fails(
            "a long id",
            "string correlation ID cannot be longer than 128 characters",
            Sequence(client, "one_slot", "x" * 129, False).infer,
            1,
            start=True,
        )


def accumulates(model, batched, i):
    """One sequence of ten requests."""
    keeps = model.startswith("keeper")
    number = f"{model}-{i}" if model == "texts" or (keeps and i % 3 == 0) else 1000 + i
    s = Sequence(clients()[i % 2], model, number, batched)
    total = 100 if keeps else 0
    for n in range(10):
        total += i * 10 + n
        what = f"{model} {i} at {n}"
        got = s.infer(i * 10 + n, start=n == 0, end=n == 9)
        expect(what, int(got.as_numpy("TOTAL").reshape(-1)[0]), total)
        if keeps:
            expect(what, int(got.as_numpy("LENGTH").reshape(-1)[0]), 2 + n + 1)
            words = [w.decode() for w in got.as_numpy("WORDS").reshape(-1)]
            expect(what, words, ["", *(str(i * 10 + k) for k in range(n + 1))])


def accumulate():
    """Many sequences at once: each keeps its total, independent of the others."""
    models = {
        "direct": True,
        "oldest": True,
        "texts": False,
        "keeper": False,
        "keeper_direct": True,
        "keeper_oldest": True,
    }
    for model, batched in models.items():
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for future in [pool.submit(accumulates, model, batched, i) for i in range(1, 13)]:
                future.result(LIMIT)


def streams():
    """Sequences over a stream: the next request does not wait for the response."""
    _, g = clients()
    came = queue.Queue()
    g.start_stream(lambda result, error: came.put((result, error)))
    for n in range(20):
        for number in (301, 302, 303):
            g.async_stream_infer(
                "direct",
                tensors(grpc, number + n, True),
                request_id=f"{number}",
                sequence_id=number,
                sequence_start=n == 0,
                sequence_end=n == 19,
            )
    totals = {301: 0, 302: 0, 303: 0}
    seen = dict.fromkeys(totals, 0)
    for _ in range(60):
        result, error = came.get(timeout=LIMIT)
        assert error is None, error
        number = int(result.get_response().id)
        totals[number] += number + seen[number]
        seen[number] += 1
        expect("total", int(result.as_numpy("TOTAL").reshape(-1)[0]), totals[number])
    g.stop_stream()


def padding():
    """Empty slots of a batch are padded; other shapes wait for the next batch."""
    h, _g = clients()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        four = [Sequence(grpc.InferenceServerClient(GRPC), "fill", n, True) for n in (11, 12, 13, 14)]
        first = [pool.submit(s.saw, 1, start=True) for s in four[:3]]
        expect("three of four", sorted(f.result(LIMIT)["batch"] for f in first), [3, 3, 3])
        # Slots 0, 1 and 2 are taken; 3 begins with two others, so one is padded.
        second = [pool.submit(s.saw, 2, start=i == 2) for i, s in enumerate([four[1], four[2], four[3]])]
        got = [f.result(LIMIT) for f in second]
        batches = {(x["batch"], x["padding"]) for x in got}
        expect("padded", batches, {(4, 1)})
        expect("ready", {x["ready"][2] for x in got}, {2.0})
        expect("corrid", sorted(x["corrid"][2] for x in got), [12, 13, 14])
        # Requests of one shape join the batch of the first, others are padded there.
        third = [pool.submit(s.saw, v) for s, v in zip(four, ([1], [1], [1], [1, 2]))]
        got = [f.result(LIMIT) for f in third[:3]]
        expect("of one shape", all(x["batch"] - x["padding"] <= 3 for x in got), True)
        expect("the other shape", [third[3].result(LIMIT)[k] for k in ("batch", "padding")], [4, 3])
        for f in [pool.submit(s.saw, 1, end=True) for s in four]:
            f.result(LIMIT)
    statistics = h.get_inference_statistics("fill")["model_stats"][0]
    padded = sum(int(b["batch_size"]) * int(b["compute_infer"]["count"]) for b in statistics["batch_stats"])
    assert padded > int(statistics["inference_count"]), statistics
    expect(
        "no padding among requests",
        int(statistics["inference_count"]),
        int(statistics["inference_stats"]["success"]["count"]),
    )


def backlog():
    _h, _g = clients()
    first, second, third = (Sequence(grpc.InferenceServerClient(GRPC), "one_slot", n, False) for n in (1, 2, 3))
    expect("first", first.total(1, start=True), 1)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waits = pool.submit(second.total, 5, start=True, end=True)
        fails(
            "in the backlog",
            "timeout of the corresponding sequence has been expired",
            third.infer,
            1,
            start=True,
            timeout=200_000,
        )
        assert not waits.done()
        expect("first", first.total(1, end=True), 2)
        expect("second", waits.result(LIMIT), 5)


def idle():
    h, g = clients()
    s = Sequence(h, "short", 9, False)
    expect("total", s.total(1, start=True), 1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(Sequence(g, "short", 10, False).total, 3, start=True)
        expect("who waits gets the slot", waits.result(LIMIT), 3)
    fails("idle", MUST_START.format(9, "short"), s.infer, 1)


def state():
    """Implicit state as seen by clients."""
    h, g = clients()
    s = Sequence(h, "keeper_oldest", "s", True)
    names = [o["name"] for o in s.infer(1, start=True).get_response()["outputs"]]
    expect("a state is an output if the config says so", sorted(names), ["LENGTH", "TOTAL", "WORDS"])
    some = s.infer(1, outputs=[http.InferRequestedOutput("LENGTH")])
    expect("what was asked for", [o["name"] for o in some.get_response()["outputs"]], ["LENGTH"])
    expect("and kept all the same", int(some.as_numpy("LENGTH").reshape(-1)[0]), 4)
    fails("an error keeps the state", "below zero", s.infer, -1)
    expect("as it was", s.total(1), 103)
    fails(
        "only a state",
        "unexpected inference output 'HISTORY_OUT' for model 'keeper_oldest'",
        s.infer,
        1,
        outputs=[http.InferRequestedOutput("HISTORY_OUT")],
    )
    expect("start anew", s.total(1, start=True), 101)
    big = Sequence(g, "keeper_oldest", 4, True)
    for n in range(1100):  # a state that exceeds a frame
        last = big.infer(n, start=n == 0)
    expect("long", int(last.as_numpy("LENGTH").reshape(-1)[0]), 1102)
    expect("long", last.as_numpy("WORDS").reshape(-1)[1100].decode(), "1099")


if __name__ == "__main__":
    for story in (controls, admission, accumulate, streams, padding, backlog, idle, state):
        began = time.monotonic()
        story()
        print(f"{story.__name__}: {time.monotonic() - began:.1f} s")
