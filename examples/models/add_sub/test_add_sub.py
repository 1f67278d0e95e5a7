"""Runs the model without a server: `pytest examples/models/add_sub`, with nereid-triton-utils installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nereid_testing import Server, outputs

HERE = Path(__file__).parent


def test_sum_and_difference() -> None:
    with Server() as server:
        model = server.load(HERE)
        got = outputs(model.infer({"INPUT0": [1, 2, 3, 4], "INPUT1": [4, 3, 2, 1]}))
        assert got["OUTPUT0"].tolist() == [5, 5, 5, 5] and got["OUTPUT1"].tolist() == [-3, -1, 1, 3]
        assert got["OUTPUT0"].dtype == np.float32


def test_batch() -> None:
    with Server() as server:
        model = server.load(HERE)
        requests = [model.request({"INPUT0": [n] * 4, "INPUT1": [1] * 4}, request_id=str(n)) for n in range(3)]
        sums = [outputs(response)["OUTPUT0"].tolist() for (response,) in model.execute(requests)]
        assert sums == [[1] * 4, [2] * 4, [3] * 4]


def test_only_requested_outputs_are_returned() -> None:
    with Server() as server:
        response = server.load(HERE).infer({"INPUT0": [0] * 4, "INPUT1": [0] * 4}, outputs=["OUTPUT1"])
        assert list(outputs(response)) == ["OUTPUT1"]
