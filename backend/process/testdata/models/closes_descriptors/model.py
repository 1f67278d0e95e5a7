"""Closes every descriptor that it finds, and then does as the request's id says."""

import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        if requests[0].request_id() != "good":
            os.closerange(0, 65536)
            if requests[0].request_id() == "sleep":
                time.sleep(100_000)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
