"""Kills processes that have sequences.

sequences_lost.py <http host:port> <gRPC host:port>
"""

import sys

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

LIMIT = 60


def ask(client, model, number, value, **more):
    tensor = grpc.InferInput("VALUE", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], dtype=np.int32))
    return int(client.infer(model, [tensor], sequence_id=number, client_timeout=LIMIT, **more).as_numpy("TOTAL")[0])


def error_of(*arguments, **more):
    try:
        got = ask(*arguments, **more)
    except InferenceServerException as e:
        return e.message()
    raise AssertionError(f"got {got}, want an error")


def main():
    client = grpc.InferenceServerClient(sys.argv[2])
    for model in ("teller", "keeper"):
        begins = 100 if model == "keeper" else 0
        assert ask(client, model, 1, 5, sequence_start=True) == begins + 5
        print(error_of(client, model, 1, 666))
        if model == "keeper":
            # The server keeps its state, so it continues where it was.
            assert ask(client, model, 1, 5) == begins + 10
            assert ask(client, model, 1, 5, sequence_end=True) == begins + 15
        else:
            got = error_of(client, model, 1, 5)
            want = "must specify the START flag on the first request of the sequence"
            assert got == f"inference request for sequence 1 to model 'teller' {want}", got
        # It waits as long as there is no process.
        assert ask(client, model, 2, 5, sequence_start=True) == begins + 5
        assert ask(client, model, 2, 5, sequence_end=True) == begins + 10

    # A process that dies between two requests: its sequence does not continue in another process.
    for kind in ("direct", "oldest"):
        asked = 0
        for model in (f"{kind}_{i}" for i in range(3)):
            for number in range(1, 5):
                try:
                    assert ask(client, model, number, 777, sequence_start=True) == 777
                    asked += 1
                    got = ask(client, model, number, 1)
                except InferenceServerException:
                    continue
                assert got == 778, f"{model} answered {got}: the process that did had not seen the START"
        assert asked > 0, f"no process of {kind} lived to answer"


main()
