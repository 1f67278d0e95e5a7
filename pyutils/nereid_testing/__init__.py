"""Runs a `model.py` in a unit test, without a server.

    from nereid_testing import Server, outputs

    def test_sum():
        with Server() as server:
            model = server.load("models/add_sub")
            response = model.infer({"INPUT0": [1, 2, 3, 4], "INPUT1": [5, 6, 7, 8]})
            assert outputs(response)["OUTPUT0"].tolist() == [6, 8, 10, 12]

A Server replaces everything that a model may request from its server: other models (BLS), metrics,
the log, loading and unloading. Requests and responses are copied as if they were sent, so a model
behaves as in a real server: BYTES tensors hold `bytes`, inputs may be written to, and an output has
its value at the time when it was sent.

    server     Server: what models ask for       config    config.pbtxt and the args of initialize
    model      Model: one loaded model           copies    tensors and responses as received
    exchange   Exchange: one open request        metrics   Metrics: families and their values
    asked      other models, or their replacements
"""

from .copies import outputs
from .metrics import Histogram
from .model import Fault, Model
from .server import LoadCall, LogLine, Server

__all__ = ["Fault", "Histogram", "LoadCall", "LogLine", "Model", "Server", "outputs"]
