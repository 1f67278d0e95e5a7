"""Looks for divisors, slowly."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """DIVISORS of INPUT; EXECUTION counts the requests that have reached the model."""

    def initialize(self, _args: dict[str, str]) -> None:
        self.executions = 0

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.divide(request) for request in requests]

    def divide(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        self.executions += 1
        number = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy().item()
        candidates = np.arange(1, number + 1)
        divisors = candidates[number % candidates == 0]
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("DIVISORS", divisors), pb_utils.Tensor("EXECUTION", np.array([self.executions]))]
        )
