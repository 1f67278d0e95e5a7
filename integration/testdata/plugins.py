"""Uses the models of plugins_test.go with tritonclient.

plugins.py <http host:port> <gRPC host:port>
"""

import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC = sys.argv[1:3]
LIMIT = 60  # seconds for each answer


def number(module, value, batched=False):
    tensor = module.InferInput("INPUT0", [1, 1] if batched else [1], "INT32")
    tensor.set_data_from_numpy(np.array([[value]] if batched else [value], np.int32))
    return [tensor]


def answer(result):
    return int(result.as_numpy("OUTPUT0").flat[0])


def want(got, expected, what):
    assert got == expected, f"{what}: got {got!r}, want {expected!r}"


def sequences(client, module):
    for step, (a, b) in enumerate([(1, 10), (2, 20), (3, 30)]):
        flags = {"sequence_start": step == 0, "sequence_end": step == 2}
        want(answer(client.infer("sum", number(module, a), sequence_id=5, **flags)), [1, 3, 6][step], "sum of 5")
        want(answer(client.infer("sum", number(module, b), sequence_id=6, **flags)), [10, 30, 60][step], "sum of 6")
    try:
        client.infer("sum", number(module, 1), sequence_id="text", sequence_start=True, sequence_end=True)
    except InferenceServerException as error:
        assert "correlation ID in request is not an unsigned int" in str(error), error
    else:
        raise AssertionError("a correlation id that is a text was taken for a number")


def streams():
    results = queue.Queue()
    with grpc.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        client.async_stream_infer("repeat", number(grpc, 300), request_id="many", enable_empty_final_response=True)
        client.async_stream_infer("repeat", number(grpc, 0), request_id="none", enable_empty_final_response=True)
        values, finals = [], []
        while len(finals) < 2:
            result, error = results.get(timeout=LIMIT)
            assert error is None, error
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                finals.append(response.id)
            else:
                values.append(answer(result))
        client.stop_stream()
    want(sorted(finals), ["many", "none"], "final responses")
    want(values, list(range(300)), "responses")


def batches():
    with http.InferenceServerClient(HTTP, concurrency=4) as client:
        requests = [client.async_infer("batch", number(http, i, batched=True)) for i in range(4)]
        want([answer(r.get_result(timeout=LIMIT)) for r in requests], [4] * 4, "sizes of the batch")


def configs():
    with http.InferenceServerClient(HTTP) as client:
        config = client.get_model_config("completed")
        want([i["name"] for i in config["input"]], ["INPUT0"], "inputs of a completed config")
        want(config["backend"], "many", "backend")
        want(client.get_model_metadata("completed")["platform"], "many", "platform")
        want(client.is_model_ready("completed"), True, "readiness")
        want(client.get_inference_statistics("completed")["model_stats"][0]["inference_stats"]["fail"]["count"], 0, "failures")


with http.InferenceServerClient(HTTP) as over_http, grpc.InferenceServerClient(GRPC) as over_grpc:
    sequences(over_http, http)
    sequences(over_grpc, grpc)
streams()
batches()
configs()
