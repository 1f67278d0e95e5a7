"""Turns a text into numbers."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = ["sun", "warm", "rain", "cold", "snow", "wind"]


class TritonPythonModel:
    """VECTOR counts how often each of the known words is in TEXT."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            vectors = np.zeros((len(texts), len(WORDS)), np.float32)
            for row, text in enumerate(texts[:, 0]):
                words = text.decode("utf-8", "replace").lower().split()
                vectors[row] = [words.count(word) for word in WORDS]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("VECTOR", vectors)]))
        return responses
