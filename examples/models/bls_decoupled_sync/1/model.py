"""Adds up the responses of a decoupled model."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """SUM is the sum of OUT over all responses of square_int32 to IN."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            inner = pb_utils.InferenceRequest(
                model_name="square_int32",
                requested_output_names=["OUT"],
                inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
            )

            # Sums have more bits than their terms. The type of an output is that of its array,
            # and config.pbtxt has to say the same.
            total = np.zeros(1, np.int64)
            for answer in inner.exec(decoupled=True):  # each as it comes
                if answer.has_error():
                    raise pb_utils.TritonModelException(answer.error().message())
                # The last one may be empty: it says only that there are no more.
                if answer.output_tensors():
                    total += pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)]))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
