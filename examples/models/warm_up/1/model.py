"""Has something to prepare for each size of batch, when it meets it first."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT is INPUT, smoothed. SEEN tells how often a batch of this size came before."""

    def initialize(self, _args: dict[str, str]) -> None:
        self.seen: dict[int, int] = {}

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        size = sum(map(len, inputs))  # a batch of 8 is a request of 8 rows, or 8 of one, as in the warm-up
        seen = self.seen.get(size, 0)
        self.seen[size] = seen + 1
        # if seen == 0: a compiler would be busy for seconds now
        return [self.smooth(rows, seen) for rows in inputs]

    def smooth(self, rows: np.ndarray, seen: int) -> pb_utils.InferenceResponse:
        output = (np.roll(rows, 1, axis=1) + rows + np.roll(rows, -1, axis=1)) / np.float32(3)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT", output), pb_utils.Tensor("SEEN", np.full((len(rows), 1), seen, np.int32))]
        )
