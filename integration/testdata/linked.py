"""Uses models of the backend "probe" with tritonclient: linked.py <http host:port> <gRPC host:port>."""

import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

HTTP, GRPC = sys.argv[1:3]
PAIRS = ((http, http.InferenceServerClient(HTTP, network_timeout=60)), (grpc, grpc.InferenceServerClient(GRPC)))


def inputs(module, values):
    tensor = module.InferInput("IN", list(values.shape), "INT32")
    tensor.set_data_from_numpy(values)
    return [tensor]


def echoes(module, client, model, values):
    result = client.infer(model, inputs(module, values), request_id="x")
    assert np.array_equal(result.as_numpy("OUT"), values), (model, result.as_numpy("OUT"))


for module, client in PAIRS:
    # One number, 4 MiB, nothing; from a model that joins requests and from one that calls it.
    for model in ("plain", "caller"):
        for values in (np.array([[7]], np.int32), np.arange(1 << 20, dtype=np.int32).reshape(1, -1), np.zeros((2, 0), np.int32)):
            echoes(module, client, model, values)

client = PAIRS[0][1]
requests = [client.async_infer("plain", inputs(http, np.full((2, 3), i, np.int32))) for i in range(20)]
for i, request in enumerate(requests):
    assert (request.get_result().as_numpy("OUT") == i).all()
config = client.get_model_config("plain")
assert config["max_batch_size"] == 4 and config["input"][0]["name"] == "IN" and config["output"][0]["dims"] == [-1], config
stats = client.get_inference_statistics("plain")["model_stats"][0]
# Two over each front end and kind of request, of 1 and 2; as many again from the caller.
assert stats["inference_count"] == 2 * 2 * (1 + 1 + 2) + 20 * 2, stats
assert stats["inference_stats"]["fail"]["count"] == 0, stats
assert stats["memory_usage"][0]["byte_size"] == "12345" or stats["memory_usage"][0]["byte_size"] == 12345, stats

# A decoupled model: as many responses as requested (200 exceed its window), and one execution per response.
for model, n in (("sender", 0), ("sender", 1), ("sender", 200), ("rounds", 0), ("rounds", 1), ("rounds", 50)):
    got = queue.Queue()
    stream = grpc.InferenceServerClient(GRPC)
    stream.start_stream(lambda result, error: got.put((result, error)))
    stream.async_stream_infer(model, inputs(grpc, np.array([n], np.int32)), enable_empty_final_response=True)
    numbers = []
    while True:
        result, error = got.get(timeout=60)
        assert error is None, error
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
        numbers.append(int(result.as_numpy("OUT")[0]))
    assert numbers == list(range(n)), numbers
    stream.stop_stream()
    stream.close()
