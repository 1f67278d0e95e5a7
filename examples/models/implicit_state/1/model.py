"""Adds up each sequence and remembers nothing."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT is the sum of INPUT over the requests of a sequence so far."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.add(request) for request in requests]

    def add(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        total = pb_utils.get_input_tensor_by_name(request, "TOTAL_IN").as_numpy()
        total = total + pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
        # The next request of the sequence gets the output named output_name as its state.
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", total), pb_utils.Tensor("TOTAL_OUT", total)])
