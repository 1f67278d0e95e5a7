"""Parameters of requests and responses with tritonclient: parameters.py <http host:port> <grpc host:port>"""

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

PARAMETERS = {"s": 'x"y ü\n', "i": -5, "big": 2**63 - 1, "t": True, "f": False}
HEADERS = {"X-One": "1", "x-two": "zwei", "Other": "no"}


def inputs(module):
    tensor = module.InferInput("IN0", [1, 1], "UINT8")
    tensor.set_data_from_numpy(np.ones((1, 1), np.uint8))
    return [tensor]


def check(got, want, what):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def seen(result):
    """The parameters that the model has seen, which it returns as JSON."""
    return json.loads(bytes(result.as_numpy("OUT0")[0]).decode())


over_http = http.InferenceServerClient(sys.argv[1])
result = over_http.infer("echo", inputs(http), parameters=PARAMETERS, headers=dict(HEADERS), request_id="i", priority=1, timeout=5_000_000)
check(seen(result), {**PARAMETERS, "X-One": "1", "x-two": "zwei"}, "HTTP")
check(list(seen(result)), [*PARAMETERS, "X-One", "x-two"], "order over HTTP")
check(result.get_response()["parameters"], {"text": "wörd", "number": -7, "yes": True, "no": False}, "response parameters over HTTP")
check(list(result.get_response()["parameters"]), ["text", "number", "yes", "no"], "their order over HTTP")

over_grpc = grpc.InferenceServerClient(sys.argv[2])
WANT = {**PARAMETERS, "x-one": "1", "x-two": "zwei"}
lower = {name.lower(): value for name, value in HEADERS.items()}
result = over_grpc.infer("echo", inputs(grpc), parameters=PARAMETERS, headers=lower, request_id="i", priority=1, timeout=5_000_000)
check(seen(result), WANT, "gRPC")


def response_parameters(response):
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in response.parameters.items()}


check(
    response_parameters(result.get_response()), {"text": "wörd", "number": -7, "yes": True, "no": False},
    "response parameters over gRPC",
)  # fmt: skip

answers = queue.SimpleQueue()
over_grpc.start_stream(lambda result, error: answers.put((result, error)), headers=lower)
for n in range(2):
    over_grpc.async_stream_infer("echo", inputs(grpc), parameters={**PARAMETERS, "n": n})
    result, error = answers.get(timeout=60)
    check(error, None, "stream")
    check(seen(result), {**WANT, "n": n}, "stream")
over_grpc.stop_stream()

# A double, which tritonclient cannot send.
import grpc as plain  # noqa: E402

request = pb.ModelInferRequest(model_name="echo", raw_input_contents=[b"\1"])
request.inputs.add(name="IN0", datatype="UINT8", shape=[1, 1])
request.parameters["d"].double_param = 2.0
request.parameters["e"].double_param = 1e30
response = service_pb2_grpc.GRPCInferenceServiceStub(plain.insecure_channel(sys.argv[2])).ModelInfer(request)
text = response.raw_output_contents[0].decode()
check(json.loads(text), {"d": 2.0, "e": 1e30}, "doubles over gRPC")
check(isinstance(json.loads(text)["d"], float), True, "the type of a double")
