"""Fails in execute, unless it is asked not to."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        if requests[0].request_id() != "good":
            raise ValueError("not today")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
