"""Keeps the arrays of the last 13 requests, and adds up their first elements."""

import collections

import numpy as np
import triton_python_backend_utils as pb_utils

window = collections.deque(maxlen=13)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            window.append(request.inputs()[0].as_numpy())
            total = sum(int(array[0, 0]) + int(array[0, -1]) for array in window)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.full((1, 1), total % 251, np.uint8))]))
        return responses
