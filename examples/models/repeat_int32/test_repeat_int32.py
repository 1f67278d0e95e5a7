"""A model that sends several responses from a thread, after `execute` has returned."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton_python_backend_utils as pb_utils
from nereid_testing import Server, outputs

HERE = Path(__file__).parent


def test_a_response_for_each_element() -> None:
    with Server() as server:
        model = server.load(HERE)
        responses = model.stream({"IN": [4, 2, 0, 1], "DELAY": [1, 2, 3, 4], "WAIT": [5]})
        assert [outputs(response)["OUT"].tolist() for response in responses] == [[4], [2], [0], [1]]
        assert [outputs(response)["IDX"].tolist() for response in responses] == [[0], [1], [2], [3]]


def test_nothing_to_send() -> None:
    with Server() as server:
        assert server.load(HERE).stream({"IN": [], "DELAY": [], "WAIT": [0]}) == []


def test_it_wants_a_decoupled_config() -> None:
    with Server() as server, pytest.raises(pb_utils.TritonModelException, match="needs model_transaction_policy"):
        server.load(HERE, config={})
