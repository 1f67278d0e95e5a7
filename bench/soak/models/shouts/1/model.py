from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

LONG = "shout " * (2 << 20)


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        how = int(request.inputs()[0].as_numpy()[0]) % 4
        if how == 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(LONG))
        if how == 1:
            values = np.full(1, 1, np.int32)
            call = pb_utils.InferenceRequest(
                model_name="sleeps",
                requested_output_names=["OUT"],
                inputs=[pb_utils.Tensor("IN", values)],
                request_id=LONG,
            )
            return pb_utils.InferenceResponse(error=call.exec().error())
        if how == 2:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(1 << 20, b"", object))])
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([LONG], object))])
