from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, _args: dict[str, str]) -> None:
        raise RuntimeError("this model never starts")

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        raise RuntimeError(f"{len(requests)} requests for a model that has not started")
