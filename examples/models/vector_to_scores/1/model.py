"""A network of one layer."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

#                    sun warm rain cold snow wind
WEIGHTS = np.array([[2, 2, -1, -1, -2, 0], [-1, 0, 3, 1, -1, 1], [0, -2, -1, 2, 3, 0]], np.float32).T


class TritonPythonModel:
    """SCORES = VECTOR @ WEIGHTS"""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            vectors = pb_utils.get_input_tensor_by_name(request, "VECTOR").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", vectors @ WEIGHTS)]))
        return responses
