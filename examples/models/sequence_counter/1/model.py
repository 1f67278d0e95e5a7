"""Counts for each sequence of requests, and remembers between them."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT is the sum of INPUT over the requests of a sequence so far."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.most = int(config["parameters"]["max_sequences"]["string_value"])
        self.totals: OrderedDict[int | str, np.ndarray] = OrderedDict()  # the longest silent first

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.count(request) for request in requests]

    def count(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        sequence, flags = request.correlation_id(), request.flags()
        if not sequence:
            return self.refuse("the request has no correlation ID")
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            total = np.zeros(1, np.int32)
        elif sequence in self.totals:
            total = self.totals.pop(sequence)
        else:
            return self.refuse(f"sequence {sequence} has not been started, or was silent for too long")

        total = total + pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()

        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            self.totals.pop(sequence, None)  # still there if a sequence restarts with its last request
        else:
            self.totals[sequence] = total
            self.totals.move_to_end(sequence)
            if len(self.totals) > self.most:
                self.totals.popitem(last=False)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", total)])

    @staticmethod
    def refuse(why: str) -> pb_utils.InferenceResponse:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(why, pb_utils.TritonError.INVALID_ARG))

    def finalize(self) -> None:
        print("Cleaning up...")
