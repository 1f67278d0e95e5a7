"""Sends batches to models that receive them as one request.

stacked.py <http host:port> <gRPC host:port> <prefix of files>
"""

import concurrent.futures
import json
import os
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

HTTP, GRPC, MARK = sys.argv[1:4]
LIMIT = 60  # seconds for each answer
threads = concurrent.futures.ThreadPoolExecutor(16)
client = grpc.InferenceServerClient(GRPC)


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def tensor(name, array):
    t = grpc.InferInput(name, array.shape, "BYTES" if array.dtype == np.object_ else "FP32")
    t.set_data_from_numpy(array)
    return t


def numbers(*rows):
    return np.array(rows, np.float32)


def texts(*rows):
    return np.array([[row] for row in rows], np.object_)


def send(model, arrays, **more):
    """Sends one request in a thread; returns a future of its answer or error."""
    outputs = more.pop("outputs", None)
    if outputs:
        more["outputs"] = [grpc.InferRequestedOutput(name) for name in outputs]

    def infer():
        return client.infer(model, [tensor(*pair) for pair in arrays.items()], client_timeout=LIMIT, **more)

    return threads.submit(infer)


def error(future):
    try:
        future.result()
    except InferenceServerException as e:
        return e.message()
    return None


def statistics(model):
    s = client.get_inference_statistics(model).model_stats[0]
    return s.inference_count, s.execution_count, s.inference_stats.success.count, {b.batch_size for b in s.batch_stats}


def rows():
    futures = [send("stacked", {"INPUT": array}) for array in (numbers([1, 2]), numbers([3, 4], [5, 6]), numbers([7, 8], [9, 10], [11, 12]))]
    answers = [f.result() for f in futures]
    expect("rows", [a.as_numpy("OUTPUT").tolist() for a in answers], [[[2, 4]], [[6, 8], [10, 12]], [[14, 16], [18, 20], [22, 24]]])
    expect("statistics", statistics("stacked"), (6, 1, 3, {6}))
    # One request can be a batch.
    expect("six rows", send("stacked", {"INPUT": np.ones((6, 3), np.float32)}).result().as_numpy("OUTPUT").tolist(), [[2.0] * 3] * 6)
    expect("statistics", statistics("stacked"), (12, 2, 4, {6}))


def large():
    """Large inputs that are joined in parallel, repeatedly."""
    for round_ in range(5):
        arrays = [np.full((1, 1 << 19), 10 * round_ + i, np.float32) for i in range(6)]
        for array, future in zip(arrays, [send("stacked", {"INPUT": array}) for array in arrays]):
            got = future.result().as_numpy("OUTPUT")
            assert got.shape == array.shape and (got == 2 * array).all(), "a large output is another request's"


def told():
    """The model's view of six requests with different ids, parameters and flags."""
    futures = []
    for i in range(6):
        more = {"parameters": {"temperature": i, "mode": "fast"}}
        if i < 2:
            more["request_id"] = f"request {i}"
        more["outputs"] = ["SEEN"] if i % 2 else ["OUTPUT", "SEEN"]
        futures.append(send("told", {"INPUT": numbers([i]), "TEXT": texts(f"text {i}")}, **more))
    answers = [f.result() for f in futures]
    for i, answer in enumerate(answers):
        expect("outputs", [o.name for o in answer.get_response().outputs], ["SEEN"] if i % 2 else ["OUTPUT", "SEEN"])
        expect("id", answer.get_response().id, f"request {i}" if i < 2 else "")
        if i % 2 == 0:
            expect("OUTPUT", answer.as_numpy("OUTPUT").tolist(), [[2 * i]])
    seen = [json.loads(a.as_numpy("SEEN")[0, 0]) for a in answers]
    expect("what all see", len({json.dumps(s) for s in seen}), 1)
    parameters = seen[0].pop("parameters")
    requests = json.loads(parameters.pop("batch_requests"))
    expect("parameters", parameters, {"mode": "fast"})
    order = [r["parameters"]["temperature"] for r in requests]
    expect("requests", sorted(order), list(range(6)))
    for i, r in zip(order, requests):
        want = {"size": 1, "parameters": {"temperature": i, "mode": "fast"}}
        if i < 2:
            want["id"] = f"request {i}"
        expect("request", r, want)
    expect("input", seen[0].pop("input"), [[i] for i in order])
    expect("seen", seen[0], {"requests": 1, "shapes": {"INPUT": [6, 1], "TEXT": [6, 1]}, "id": "", "outputs": ["OUTPUT", "SEEN"], "extra": {}})

    # BYTES of different lengths.
    words = ["", "a", "bcd", "ä", "e" * 5000, "f"]
    futures = [send("told", {"INPUT": numbers([0]), "TEXT": texts(word.encode())}, outputs=["LOUD"]) for word in words]
    expect("texts", [f.result().as_numpy("LOUD")[0, 0].decode() for f in futures], [w.upper() if w.isascii() else w for w in words])


def uneven(model):
    """Rows of three lengths: of one value, of three and of two."""
    inputs = [numbers([1], [2]), numbers([3, 4, 5]), numbers([6, 7], [8, 9], [10, 11])]
    futures = [send(model, {"INPUT": array, "TEXT": texts(*["t"] * len(array))}) for array in inputs]
    answers = [f.result() for f in futures]
    for array, answer in zip(inputs, answers):
        expect(model, answer.as_numpy("OUTPUT").tolist(), (2 * array).tolist())
    seen = json.loads(answers[0].as_numpy("SEEN")[0, 0])
    lengths = [length for (length,) in seen["extra"]["LENGTHS"]]
    expect("lengths", sorted(lengths), [1, 1, 2, 2, 2, 3])
    expect("offsets", (seen["extra"]["OFFSETS"][0], seen["extra"]["OFFSETS"][-1], len(seen["extra"]["OFFSETS"])), (0, 11, 4))
    if model == "ragged":
        expect("shape", seen["shapes"]["INPUT"], [11])
    else:
        expect("shape", seen["shapes"]["INPUT"], [6, 3])
        for length, row in zip(lengths, seen["input"]):
            expect("padding", row[length:], [0.5] * (3 - length))
            assert 0.5 not in row[:length]
    # A single request is treated in the same way.
    array = np.ones((6, 2), np.float32)
    answer = send(model, {"INPUT": array, "TEXT": texts(*["t"] * 6)}).result()
    expect("alone", answer.as_numpy("OUTPUT").tolist(), (2 * array).tolist())
    seen = json.loads(answer.as_numpy("SEEN")[0, 0])
    expect("alone", (seen["shapes"]["INPUT"], seen["extra"]["OFFSETS"]), ([12] if model == "ragged" else [6, 2], [0, 12]))


def errors():
    for act, want in (
        (-1, "as asked for"),
        (-2, "not these"),
        (-4, "output 'OUTPUT' of model 'stacked' has shape [5,1], which does not fit a stacked batch: want 6 in the first dimension"),
        (-5, "every instance of it waits for this call (stacked → stacked)"),
        (-3, "is not healthy"),
    ):
        futures = [send("stacked", {"INPUT": numbers([act if i == 2 else i])}) for i in range(6)]
        for future in futures:
            message = error(future)
            assert message and want in message, f"act {act}: got {message}, want {want}"
        # The model continues.
        futures = [send("stacked", {"INPUT": numbers([i])}) for i in range(6)]
        expect("afterwards", [f.result().as_numpy("OUTPUT").item() for f in futures], [2 * i for i in range(6)])


def wait(path):
    end = time.monotonic() + LIMIT
    while not os.path.exists(path):
        assert time.monotonic() < end, f"{path} has not come"
        time.sleep(0.01)


def cancellation():
    for leave, said in ((6, "cancelled"), (5, "wanted")):
        mark = f"{MARK}.{leave}"
        array = texts(mark.encode())
        stays = [send("patient", {"TEXT": array}) for _ in range(6 - leave)]
        # The callbacks of cancelled calls are not used, because not every client calls them.
        leaves = [client.async_infer("patient", [tensor("TEXT", array)], lambda *_: None) for _ in range(leave)]
        wait(mark + ".begun")
        for call in leaves:
            call.cancel()
        if stays:
            # Time in which the model could have been notified; its answer shows that it was not.
            time.sleep(0.3)
            open(mark + ".enough", "w").close()
        wait(f"{mark}.{said}")
        for stay in stays:
            expect("who stayed", stay.result().as_numpy("LOUD").tolist(), [[b"wanted"]])


rows()
large()
told()
uneven("ragged")
uneven("padded")
errors()
cancellation()
client.close()
