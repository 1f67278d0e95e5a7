"""Adds up each sequence, with the help of the server."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


def number(request: pb_utils.InferenceRequest, name: str) -> int:
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().item())


class TritonPythonModel:
    """OUTPUT is the sum of INPUT over the requests of a sequence so far."""

    def initialize(self, _args: dict[str, str]) -> None:
        self.totals: dict[int, int] = {}  # by correlation ID

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        # No two requests of one sequence are in the same batch.
        return [self.add(request) for request in requests]

    def add(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        sequence = number(request, "CORRID")
        total = number(request, "INPUT")
        if not number(request, "START"):
            total += self.totals[sequence]
        # The state of a disconnected client is overwritten when its number is used again. A model with more state
        # than a number would forget it after max_sequence_idle_microseconds, as the server does.
        self.totals[sequence] = total
        if number(request, "END"):
            del self.totals[sequence]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[total]], np.int32))])
