"""Looks at signals of different lengths without a loop over them."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """MEAN of each signal; SCALED, the signal divided by its largest value; REQUESTS that were in the batch."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.look(request) for request in requests]

    def look(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        values = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
        shape = values.shape  # (values of all signals,); where batches are not stacked (1, values of one)
        values = values.reshape(-1)
        ends = pb_utils.get_input_tensor_by_name(request, "ENDS")
        last = np.array([len(values)]) if ends is None else ends.as_numpy()
        first = np.concatenate([[0], last[:-1]])

        mean = np.add.reduceat(values, first) / (last - first)
        scaled = values / np.repeat(np.maximum.reduceat(values, first), last - first)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("MEAN", mean.astype(np.float32).reshape(-1, 1)),
                pb_utils.Tensor("SCALED", scaled.reshape(shape)),
                pb_utils.Tensor("REQUESTS", np.full((len(last), 1), len(last), np.int32)),
            ]
        )
