"""Turns scores into a name and a probability."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

LABELS = np.array([b"summer", b"autumn", b"winter"], np.object_)


class TritonPythonModel:
    """LABEL is the name of the best of SCORES, PROBABILITY how sure that is."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
            parts = np.exp(scores - scores.max(axis=1, keepdims=True))
            parts /= parts.sum(axis=1, keepdims=True)
            best = parts.argmax(axis=1)
            outputs = [
                pb_utils.Tensor("LABEL", LABELS[best].reshape(-1, 1)),
                pb_utils.Tensor("PROBABILITY", parts.max(axis=1, keepdims=True)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
