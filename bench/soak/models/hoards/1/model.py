from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, _args: dict[str, str]) -> None:
        self.kept: list[pb_utils.Tensor] = []

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            self.kept += request.inputs()
            out = pb_utils.Tensor("OUT", np.array([len(self.kept)], np.int32))
            responses.append(pb_utils.InferenceResponse([out]))
        return responses
