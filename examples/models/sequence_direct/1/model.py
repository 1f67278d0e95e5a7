"""Adds up each sequence, with the help of the server."""

from __future__ import annotations

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def number(request: pb_utils.InferenceRequest, name: str) -> int:
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().item())


class TritonPythonModel:
    """OUTPUT is the sum of INPUT over the requests of a sequence so far."""

    def initialize(self, args: dict[str, str]) -> None:
        # The place in the batch says which sequence it is: state is an array, and never grows.
        slots = json.loads(args["model_config"])["max_batch_size"]
        self.totals = np.zeros(slots, np.int32)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for slot, request in enumerate(requests):
            # A slot without a request is filled with a request that is not READY. Its response is dropped.
            if number(request, "READY"):
                if number(request, "START"):
                    self.totals[slot] = 0
                self.totals[slot] += number(request, "INPUT")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", self.totals[slot].reshape(1, 1))]))
        return responses
