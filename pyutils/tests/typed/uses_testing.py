"""The test of a model as its author writes it; `mypy --strict` accepts it."""

from __future__ import annotations

from typing import Iterator

import numpy as np
import triton_python_backend_utils as pb_utils
from nereid_testing import Fault, Histogram, Server, outputs


def square(request: pb_utils.InferenceRequest) -> dict[str, np.ndarray]:
    return {"OUT": pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() ** 2}


def count(request: pb_utils.InferenceRequest) -> Iterator[pb_utils.InferenceResponse]:
    for n in range(3):
        if not request.is_cancelled():
            yield pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n]))])


def test_model() -> None:
    with Server({"square": square, "count": count}, unloaded=("count",)) as server:
        model = server.load("models/mine", {"max_batch_size": 4}, name="mine", version=1)
        response = model.infer({"IN": [1, 2]}, request_id="7", parameters={"a": 1})
        values: list[float] = outputs(response)["OUT"].tolist()
        assert values
        for part in model.stream({"IN": np.zeros(3)}, cancel_after=2):
            part.has_error()
        request = model.request({"IN": [1]})
        model.cancel(request)
        batch: list[list[pb_utils.InferenceResponse]] = model.execute([request], seconds=1)
        batch[0][0].outputs()  # type: ignore[attr-defined]  # responses have a type
        model.instance.anything()
        value = server.metric("requests", {"model": "mine"})
        assert isinstance(value, Histogram) or value > 0
        assert server.logs[0].level == "INFO" and server.loads[0].model == "count"
        server.log  # type: ignore[attr-defined]  # noqa: B018
        names: list[str] = [asked.request_id() for asked in server.asked]
        if not names:
            raise Fault("nobody was asked")
