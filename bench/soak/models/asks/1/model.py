from __future__ import annotations

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils


def doubled(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    request = pb_utils.InferenceRequest(
        model_name="doubles", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", values)]
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException("doubles: " + response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            values = request.inputs()[0].as_numpy().reshape(1, 1)
            try:
                out = pb_utils.Tensor("OUT", doubled(doubled(values)).reshape(1))
                responses.append(pb_utils.InferenceResponse([out]))
            except pb_utils.TritonModelException as e:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e))))
        return responses
