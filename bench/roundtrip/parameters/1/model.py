"""Returns its input, and the parameters of the request if one of them asks for that."""

from __future__ import annotations

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0. If "returned" is true, all parameters are returned as well."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", array)]
            parameters = json.loads(request.parameters())
            if not parameters["returned"]:
                parameters = None
            responses.append(pb_utils.InferenceResponse(outputs, parameters=parameters))
        return responses
