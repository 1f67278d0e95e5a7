"""Sends requests to models that reschedule them.

rounds.py <http host:port> <gRPC host:port>
"""

import concurrent.futures
import json
import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC = sys.argv[1:3]
LIMIT = 60  # seconds for each answer


def rounds(n):
    tensor = grpc.InferInput("ROUNDS", [1], "INT32")
    tensor.set_data_from_numpy(np.array([n], dtype=np.int32))
    return [tensor]


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def fails(what, want, call):
    try:
        got = call()
    except InferenceServerException as e:
        assert want in e.message(), f"{what}: got {e.message()}, want {want}"
        return
    raise AssertionError(f"{what}: got {got}, want an error")


def seen(answer):
    return json.loads(answer.as_numpy("SEEN")[0])


def infer(client, model, n, request_id, **more):
    return client.infer(model, rounds(n), request_id=request_id, client_timeout=LIMIT, **more)


def stream(client, model, n, request_id, **more):
    """Returns the model's responses, with the last one separate."""
    came = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)))
    try:
        client.async_stream_infer(model, rounds(n), request_id=request_id, enable_empty_final_response=True, **more)
        texts = []
        while True:
            result, error = came.get(timeout=LIMIT)
            if error is not None:
                raise error
            if result.as_numpy("SEEN") is not None:
                texts.append(result.as_numpy("SEEN")[0].decode())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return texts[:-1], json.loads(texts[-1])
    finally:
        client.stop_stream()


def executions(client, model):
    statistics = client.get_inference_statistics(model, as_json=True)["model_stats"][0]
    return int(statistics.get("execution_count", 0)), int(statistics.get("inference_count", 0))


def main():
    with grpc.InferenceServerClient(GRPC) as client, http.InferenceServerClient(HTTP) as web:
        # One round, and several: each is its own sequence.
        expect("one round", seen(infer(client, "iterative", 1, "one")), [[1, 1]])
        expect("three rounds", seen(infer(client, "iterative", 3, "three")), [[1, 2], [0, 2], [0, 2]])
        expect("its own sequence", seen(infer(client, "iterative", 2, "own", sequence_id=77, sequence_start=True)), [[1, 77], [0, 77]])
        expect("a text", seen(infer(client, "iterative", 2, "text", sequence_id="mine", sequence_start=True)), [[1, "mine"], [0, "mine"]])
        expect("counts", executions(client, "iterative"), (8, 8))
        expect("END without a sequence", [f for f, _ in seen(infer(client, "iterative", 2, "no id", sequence_end=True))], [1, 0])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: seen(infer(client, "iterative", 1 + i % 5, f"many {i}")), range(40)))
        for i, answer in enumerate(answers):
            expect("many at once", [flags for flags, _ in answer], [1] + [0] * (i % 5))
            expect("many at once", len({id for _, id in answer}), 1)

        # The same over HTTP.
        tensor = http.InferInput("ROUNDS", [1], "INT32")
        tensor.set_data_from_numpy(np.array([3], dtype=np.int32))
        expect("by HTTP", [f for f, _ in seen(web.infer("iterative", [tensor], request_id="http"))], [1, 0, 0])

        # A stream sends in each round.
        for n in (1, 2, 5):
            before, last = stream(client, "stream", n, f"stream {n}")
            expect("a stream", before, [f"round {i}" for i in range(1, n)])
            expect("a stream", [f for f, _ in last], [1] + [0] * (n - 1))

        # A request that cannot be rescheduled gets an error.
        start = "inference request for sequence 9 to model 'iterative' must specify the START flag on the first request of the sequence"
        fails("END", start, lambda: infer(client, "iterative", 2, "end", sequence_id=9, sequence_start=True, sequence_end=True))
        fails("no START", start, lambda: infer(client, "iterative", 2, "none", sequence_id=9))
        expect("END, one round", [f for f, _ in seen(infer(client, "iterative", 1, "once", sequence_id=9, sequence_start=True, sequence_end=True))], [3])
        fails("the second round", "ValueError: in the second round", lambda: infer(client, "iterative", -3, "fails"))
        refused = "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag."
        fails("not configured", refused, lambda: infer(client, "plain", 2, "plain"))
        fails("a stream, not configured", refused, lambda: stream(client, "plain_stream", 2, "plain stream"))

        # The models keep serving.
        expect("afterwards", seen(infer(client, "plain", 1, "after")), [[0, 0]])
        expect("afterwards", stream(client, "plain_stream", 1, "after"), ([], [[0, 0]]))
        expect("afterwards", [f for f, _ in seen(infer(client, "iterative", 2, "after"))], [1, 0])


main()
