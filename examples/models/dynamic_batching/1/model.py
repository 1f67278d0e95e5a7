"""Computes for many clients at once."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT = tanh(INPUT), REQUESTS is how many requests were in the same call of execute."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        # A batch is a list of requests, each with one row or more. Put together, they need one pass; the rows are
        # then given back to whom they came from. The example stacked_batch leaves all that to the server.
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        outputs = np.tanh(np.concatenate(inputs))

        responses = []
        end = 0
        for rows in inputs:
            begin, end = end, end + len(rows)
            together = np.full((len(rows), 1), len(requests), np.int32)
            responses.append(
                pb_utils.InferenceResponse(
                    [pb_utils.Tensor("OUTPUT", outputs[begin:end]), pb_utils.Tensor("REQUESTS", together)]
                )
            )
        return responses
