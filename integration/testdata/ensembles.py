"""Prints the responses of ensembles: a line for each story and protocol.

ensembles.py <http host:port> <gRPC host:port> <stories>
"""

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC = sys.argv[1:3]
SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


def values(result, names):
    """The outputs as text, by name."""
    listed = []
    for name in sorted(names):
        array = result.as_numpy(name)
        shown = [v.decode() if isinstance(v, bytes) else v for v in array.reshape(-1).tolist()]
        listed.append(f"{name}{list(array.shape)}={','.join(map(str, shown))}".replace(" ", ""))
    return " ".join(listed)


def show_http(result):
    response = result.get_response()
    parameters = response.get("parameters", {})
    told = " ".join(f"{k}={parameters[k]}" for k in SEQUENCE if k in parameters)
    return f"{values(result, [o['name'] for o in response.get('outputs', [])])} ({told})"


def show_grpc(result):
    response = result.get_response()
    told = []
    for key in SEQUENCE:
        if key in response.parameters:
            parameter = response.parameters[key]
            told.append(f"{key}={getattr(parameter, parameter.WhichOneof('parameter_choice'))}")
    return f"{values(result, [o.name for o in response.outputs])} ({' '.join(told)})"


def request(module, inputs, outputs):
    made = []
    for name, value in inputs.items():
        array = np.array(value, dtype=np.int32)
        made.append(module.InferInput(name, list(array.shape), "INT32"))
        made[-1].set_data_from_numpy(array)
    return made, [module.InferRequestedOutput(name) for name in outputs] or None


def refused(error):
    return f"error {error.message().splitlines()[0]}"


def unary(module, client, show, model, inputs, outputs, options):
    made, wanted = request(module, inputs, outputs)
    try:
        return show(client.infer(model, made, outputs=wanted, **options))
    except InferenceServerException as error:
        return refused(error)


def streamed(client, model, inputs, outputs, options):
    """All responses, unsorted, even if several arrive at once."""
    made, wanted = request(grpc, inputs, outputs)
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(model, made, outputs=wanted, enable_empty_final_response=True, **options)
    listed = []
    while True:
        result, error = answers.get(timeout=60)
        if error is not None:
            listed.append(refused(error))
            break
        response = result.get_response()
        final = response.parameters["triton_final_response"].bool_param
        if response.outputs or not final:
            listed.append(show_grpc(result))
        if final:
            break
    client.stop_stream()
    return " / ".join(listed) if listed else "nothing"


def main():
    over_http = http.InferenceServerClient(HTTP)
    over_grpc = grpc.InferenceServerClient(GRPC)
    with open(sys.argv[3]) as file:
        for line in file:
            how, model, asked, *more = line.split()
            outputs, options = [], {}
            for option in more:
                key, _, value = option.partition("=")
                if key == "outputs":
                    outputs = value.split(",")
                elif key == "parameters":
                    options[key] = {value.split(":")[0]: value.split(":")[1]}
                elif key in ("sequence_start", "sequence_end"):
                    options[key] = value == "True"
                else:
                    options[key] = int(value) if value.isdigit() else value
            inputs = {}
            for pair in asked.split(";"):
                name, _, text = pair.partition("=")
                inputs[name] = json.loads(text)
            told = {
                "http": lambda: unary(http, over_http, show_http, model, inputs, outputs, options),
                "grpc": lambda: unary(grpc, over_grpc, show_grpc, model, inputs, outputs, options),
                "stream": lambda: streamed(over_grpc, model, inputs, outputs, options),
            }[how]()
            print(f"{line.strip()} -> {told}", flush=True)


main()
