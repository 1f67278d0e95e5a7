"""Passes its requests through the identity model three times, one call after the other."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        tensors = request.inputs()
        for _ in range(3):
            response = pb_utils.InferenceRequest(
                model_name="identity", requested_output_names=["OUTPUT0"], inputs=tensors
            ).exec()
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
            output = pb_utils.get_output_tensor_by_name(response, "OUTPUT0")
            tensors = [pb_utils.Tensor("INPUT0", output.as_numpy())]
        return pb_utils.InferenceResponse(response.output_tensors())
