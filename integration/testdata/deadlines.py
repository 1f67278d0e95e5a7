"""Deadlines and metadata of gRPC calls with tritonclient: deadlines.py <http host:port> <gRPC host:port>.

The model 'slow' takes 100 ms. Whichever side notices a deadline first, the client must report DEADLINE_EXCEEDED
with the same text.
"""

import collections
import queue
import sys
import threading

import numpy
import tritonclient.grpc as client

slow = client.InferInput("INPUT0", [1], "FP32")
slow.set_data_from_numpy(numpy.ones(1, numpy.float32))
seen = collections.Counter()


def unary(server):
    for _ in range(10):
        try:
            server.infer("slow", [slow], client_timeout=0.03)
            seen["unary", "answered"] += 1
        except client.InferenceServerException as error:
            seen["unary", error.status(), error.message()] += 1


def stream(server):
    for _ in range(5):
        got = queue.Queue()
        server.start_stream(lambda result, error: got.put(error), stream_timeout=0.03)
        server.async_stream_infer("slow", [slow])
        error = got.get(timeout=60)
        server.stop_stream(cancel_requests=False)
        seen["stream", error.status(), error.message()] += 1


threads = []
for call in [unary] * 8 + [stream] * 3:
    threads.append(threading.Thread(target=call, args=[client.InferenceServerClient(sys.argv[2])]))
    threads[-1].start()
for thread in threads:
    thread.join()
expected = {("unary", "StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded"): 80,
            ("stream", "StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded"): 15}
assert seen == expected, seen

# Too much metadata ends its call, and no other of the connection.
server = client.InferenceServerClient(sys.argv[2])
done = queue.Queue()
server.async_infer("slow", [slow], lambda result, error: done.put(error))
try:
    server.infer("slow", [slow], headers={"x": "v" * 66_000})
    sys.exit("66,000 bytes of metadata were accepted")
except client.InferenceServerException as error:
    assert error.status() == "StatusCode.RESOURCE_EXHAUSTED", error
    assert error.message().startswith("received initial metadata size exceeds hard limit ("), error
assert done.get(timeout=60) is None
