"""Keeps the arrays of every request."""

import triton_python_backend_utils as pb_utils

kept = []


class TritonPythonModel:
    def execute(self, requests):
        kept.extend(r.inputs()[0].as_numpy() for r in requests)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
