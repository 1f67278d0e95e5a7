"""A model that asks other models, which the test stands in for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from nereid_testing import Server, outputs

HERE = Path(__file__).parent
VECTORS = {"INPUT0": [1, 2, 3, 4], "INPUT1": [1, 1, 1, 1]}


def swap(request: pb_utils.InferenceRequest) -> dict[str, np.ndarray]:
    """The fake of a model is a function from its request to its outputs."""
    arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    return {"OUTPUT0": arrays["INPUT1"], "OUTPUT1": arrays["INPUT0"]}


def refuse(_: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError("not today", pb_utils.TritonError.UNAVAILABLE))


def test_outputs_are_passed_on() -> None:
    with Server({"swap": swap}) as server:
        got = outputs(server.load(HERE).infer({"MODEL_NAME": ["swap"], **VECTORS}))
        assert got["OUTPUT0"].tolist() == [1, 1, 1, 1] and got["OUTPUT1"].tolist() == [1, 2, 3, 4]
        assert [request.requested_output_names() for request in server.asked] == [{"OUTPUT0", "OUTPUT1"}]


def test_with_the_real_model() -> None:
    with Server({"add_sub": HERE.parent / "add_sub"}) as server:
        got = outputs(server.load(HERE).infer({"MODEL_NAME": ["add_sub"], **VECTORS}))
        assert got["OUTPUT0"].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(("name", "text"), [("refuse", "not today"), ("nobody", "unknown model: 'nobody'")])
def test_errors(name: str, text: str) -> None:
    with Server({"refuse": refuse}) as server, pytest.raises(pb_utils.TritonModelException, match=text):
        server.load(HERE).infer({"MODEL_NAME": [name], **VECTORS})
