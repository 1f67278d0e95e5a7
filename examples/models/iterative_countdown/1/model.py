"""Counts down, one step of every request in each call of execute."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


def number(request: pb_utils.InferenceRequest, name: str) -> int:
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().item())


class TritonPythonModel:
    """LEFT is COUNT - 1, then COUNT - 2 and so on to 0; REQUESTS is how many requests took the step together."""

    def initialize(self, _args: dict[str, str]) -> None:
        self.left: dict[int, int] = {}  # by correlation ID

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        for request in requests:
            self.step(request, len(requests))

    def step(self, request: pb_utils.InferenceRequest, together: int) -> None:
        sequence = number(request, "CORRID")
        if number(request, "START"):
            self.left[sequence] = number(request, "COUNT")
        self.left[sequence] -= 1
        left = self.left[sequence]

        flags = 0
        if left > 0:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)  # once more, please
        else:
            del self.left[sequence]
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        outputs = [
            pb_utils.Tensor("LEFT", np.array([[left]], np.int32)),
            pb_utils.Tensor("REQUESTS", np.array([[together]], np.int32)),
        ]
        request.get_response_sender().send(pb_utils.InferenceResponse(outputs), flags)
