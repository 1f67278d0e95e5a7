"""Returns its inputs, of whatever data type."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT_X = INPUT_X for each data type X of which the request has an input."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            outputs = []
            for tensor in request.inputs():
                name = tensor.name().replace("INPUT", "OUTPUT")
                if name == "OUTPUT_BF16":  # numpy has no such type; DLPack has
                    outputs.append(pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack()))
                else:
                    outputs.append(pb_utils.Tensor(name, tensor.as_numpy()))
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
