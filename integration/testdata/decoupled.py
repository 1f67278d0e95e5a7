"""Uses the decoupled models of decoupled_test.go.

decoupled.py <http host:port> <gRPC host:port> <what> [arguments]
"""

import os
import queue
import socket
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, WHAT = sys.argv[1:4]
PATIENCE = 60


def number(value):
    tensor = grpc.InferInput("N", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    return tensor


class Stream:
    """One stream and its responses: (request id, value, final) or (request id, error)."""

    def __init__(self, client):
        self.client = client
        self.queue = queue.Queue()
        client.start_stream(lambda result, error: self.queue.put((result, error)))

    def send(self, model, value, request_id="", empty=False):
        self.client.async_stream_infer(model, [number(value)], request_id=request_id, enable_empty_final_response=empty)

    def next(self):
        result, error = self.queue.get(timeout=PATIENCE)
        if error is not None:
            return "", str(error)
        response = result.get_response()
        value = result.as_numpy("OUT")
        return response.id, None if value is None else int(value[0]), response.parameters["triton_final_response"].bool_param

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream()


def want(got, expected, what):
    assert got == expected, f"{what}: got {got!r}, want {expected!r}"


def refused(call):
    try:
        call()
    except InferenceServerException as error:
        return error.status(), error.message()
    raise AssertionError("nothing was refused")


def rules():
    client = grpc.InferenceServerClient(GRPC)
    with Stream(client) as stream:
        stream.send("count", 3, "a", empty=True)
        want([stream.next() for _ in range(4)], [("a", i, False) for i in range(3)] + [("a", None, True)], "with the end")
        stream.send("count", 0, "b", empty=True)
        want(stream.next(), ("b", None, True), "no response")
        stream.send("count", 2, "c")
        want([stream.next() for _ in range(2)], [("c", 0, False), ("c", 1, False)], "without the end")
        for i in range(20):
            stream.send("count", 100, str(i), empty=True)
        seen = {}
        while sum(values[-1:] == [None] for values in seen.values()) < 20:
            request_id, value, final = stream.next()
            want(final, value is None, "final")
            seen.setdefault(request_id, []).append(value)
        want(seen, {str(i): [*range(100), None] for i in range(20)}, "twenty at once")
        stream.send("count", -1)
        _, text = stream.next()
        want(text, "Failed to process the request(s) for model 'count_0', message: the response sender was dropped before it had "
             "sent the final flag.", "dropped")
        stream.send("count", -2)
        want(stream.next(), ("", 0, False), "before the exception")
        _, text = stream.next()
        assert text.startswith("Failed to process the request(s) for model 'count_0', message: ValueError: no more\n\nAt:\n"), text
    with Stream(client) as stream:
        for value, expected in ((0, ("", 0, True)), (1, ("", 1, True)), (5, ("", 5, True))):
            stream.send("once", value, empty=True)
            want(stream.next(), expected, f"once {value}")
        stream.send("once", 9, empty=True)
        want(stream.next(), ("", 9, True), "the next one")
    want(refused(lambda: client.infer("count", [number(1)])),
         ("StatusCode.UNIMPLEMENTED", "ModelInfer RPC doesn't support models with decoupled transaction policy"), "unary")
    two = ("StatusCode.INTERNAL", "expected a single response, got 2")
    want(refused(lambda: client.infer("once", [number(1)])), two, "two responses")
    want(int(client.infer("once", [number(5)]).as_numpy("OUT")[0]), 5, "FINAL behind the response")
    want(int(client.infer("once", [number(6)]).as_numpy("OUT")[0]), 6, "FINAL forgotten")
    over = http.InferenceServerClient(HTTP)

    def ask(model, value):
        tensor = http.InferInput("N", [1], "INT32")
        tensor.set_data_from_numpy(np.array([value], np.int32))
        return over.infer(model, [tensor])

    want(refused(lambda: ask("count", 1)), ("501", "HTTP end point doesn't support models with decoupled transaction policy"), "HTTP")
    want(refused(lambda: ask("once", 1)), ("500", two[1]), "two responses over HTTP")
    want(int(ask("once", 5).as_numpy("OUT")[0]), 5, "one over HTTP")


def slow(count):
    """Read a long stream slower than the model sends."""
    client = grpc.InferenceServerClient(GRPC)
    with Stream(client) as stream:
        stream.send("count", count, empty=True)
        # The client library reads in the background; the responses read so far are counted here.
        for i in range(count):
            want(stream.next()[1], i, "order")
        want(stream.next(), ("", None, True), "the end")


def begun(directory):
    deadline = time.monotonic() + PATIENCE
    while not os.path.exists(f"{directory}/begun"):
        assert time.monotonic() < deadline, "the model was not asked"
        time.sleep(0.001)


def leave(how, directory):
    """Start a long request and disconnect once it has begun; print the time."""
    if how == "http":
        host, port = HTTP.split(":")
        body = b'{"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[1]}]}'
        plain = socket.create_connection((host, int(port)))
        plain.sendall(b"POST /v2/models/waits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        begun(directory)
        left = time.time()
        plain.close()
    else:
        client = grpc.InferenceServerClient(GRPC)
        if how == "unary":
            call = client.async_infer("waits", [number(1)], lambda result, error: None)
            begun(directory)
            left = time.time()
            call.cancel()
        else:
            stream = Stream(client)
            stream.send("waits_decoupled" if how == "stream" else "waits_async", 1)
            begun(directory)
            left = time.time()
            client.stop_stream(cancel_requests=True)
    with open(f"{directory}/left", "w") as file:
        file.write(str(left))


if __name__ == "__main__":
    if WHAT == "rules":
        rules()
    elif WHAT == "slow":
        slow(int(sys.argv[4]))
    else:
        leave(*sys.argv[4:6])
