from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


def call(model: str, value: int) -> pb_utils.InferenceRequest:
    inputs = [pb_utils.Tensor("IN", np.array([value], np.int32))]
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=inputs)


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            streams = [iter(call("counts", 50_000).exec(decoupled=True)) for _ in range(4)]
            for stream in streams:
                next(stream)
            call("sleeps", 1000).exec()
            values = request.inputs()[0].as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]))
        return responses
