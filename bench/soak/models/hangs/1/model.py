from __future__ import annotations

import subprocess
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, _args: dict[str, str]) -> None:
        self.left_behind = subprocess.Popen(["sleep", "3600"], start_new_session=True)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        while any(request.inputs()[0].as_numpy()[0] < 0 for request in requests):
            time.sleep(0.01)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests
        ]
