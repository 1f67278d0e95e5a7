"""Passes two vectors on to the model that the request names."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 and OUTPUT1 are those of the model MODEL_NAME, asked with INPUT0 and INPUT1."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            inner = pb_utils.InferenceRequest(
                model_name=pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0],  # bytes will do
                requested_output_names=["OUTPUT0", "OUTPUT1"],
                inputs=[pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")],
            )
            answer = inner.exec()

            # exec does not raise: whatever went wrong on the way is in the answer.
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
