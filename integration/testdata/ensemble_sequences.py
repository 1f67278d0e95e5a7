"""Uses ensembles with steps that keep totals: ensemble_sequences.py <http host:port> <gRPC host:port>.

"total_…" returns the total of a sequence, "counted_…" returns 0, 1, 2 and so on, up to the total. "fed_…" adds 1 to n,
as one sequence, and returns each total, and "nested_…" is an ensemble of that.
"""

import collections
import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC = sys.argv[1:3]
LIMIT = 120  # seconds for each answer


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


def tensors(module, value):
    tensor = module.InferInput("A", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    return [tensor]


def flags(n, count):
    return {"sequence_start": n == 0, "sequence_end": n == count - 1}


class Stream:
    """Requests over one stream, and their responses by request."""

    def __init__(self):
        self.client, self.came = grpc.InferenceServerClient(GRPC), queue.Queue()
        self.client.start_stream(lambda result, error: self.came.put((result, error)))
        self.answers, self.open = collections.defaultdict(list), 0

    def send(self, model, request_id, value, **more):
        self.client.async_stream_infer(
            model, tensors(grpc, value), request_id=request_id, enable_empty_final_response=True, **more
        )
        self.open += 1

    def all(self):
        """The answers to each request, once all have arrived."""
        while self.open > 0:
            result, error = self.came.get(timeout=LIMIT)
            assert error is None, error
            response = result.get_response()
            if response.outputs:
                self.answers[response.id].append(int(result.as_numpy("B")[0]))
            if response.parameters["triton_final_response"].bool_param:
                self.open -= 1
        answers, self.answers = dict(self.answers), collections.defaultdict(list)
        return answers


def totals(module, client, model):
    """Interleaved sequences with both kinds of ids."""
    count, ids = 4, (7, "seven")
    sums = dict.fromkeys(ids, 0)
    for n in range(count):
        for i, number in enumerate(ids):
            sums[number] += 10 * i + n
            got = client.infer(model, tensors(module, 10 * i + n), sequence_id=number, **flags(n, count))
            what = f"{model}, sequence {number} at {n}"
            expect(what, [int(got.as_numpy(name)[0]) for name in ("B", "C")], [sums[number]] * 2)
    for number in ids:
        try:
            client.infer(model, tensors(module, 1), sequence_id=number)
        except InferenceServerException as error:
            step = model.replace("total", "adds")
            want = (
                f"in ensemble '{model}', inference request for sequence {number} to model '{step}' must specify "
                "the START flag on the first request of the sequence"
            )
            expect(model, error.message(), want)
        else:
            raise AssertionError(f"{model}: a sequence without a beginning is answered")


def fed(model, lengths, ids):
    """Each request is a complete sequence for the adding step. There are more than fit at a time."""
    stream = Stream()
    for number, n in zip(ids, lengths):
        # The client's sequence flags do not affect the sequences of the feeding step.
        stream.send(model, f"of {number}", n, sequence_id=number, sequence_start=True)
    want = {f"of {number}": [sum(range(i + 2)) for i in range(n)] for number, n in zip(ids, lengths) if n > 0}
    expect(model, stream.all(), want)
    stream.client.stop_stream()


def counted(model):
    """A sequence step before one with many responses: each answer of the first leads to that many of the second."""
    stream = Stream()
    for n, value in enumerate((2, 0, 3)):  # a total of 2, 2 and 5
        stream.send(model, str(n), value, sequence_id=70, **flags(n, 3))
        expect(model, stream.all(), {str(n): list(range(5 if n == 2 else 2))})
    stream.client.stop_stream()


for strategy in ("direct", "oldest"):
    totals(http, http.InferenceServerClient(HTTP, network_timeout=LIMIT), f"total_{strategy}")
    totals(grpc, grpc.InferenceServerClient(GRPC), f"total_{strategy}")
    for model in (f"fed_{strategy}", f"nested_{strategy}"):
        fed(model, [3, 1, 0, 200, 5, 80, 2, 9], range(11, 19))
        fed(model, [4, 70, 2], ["four", "seventy", "two"])
    counted(f"counted_{strategy}")
