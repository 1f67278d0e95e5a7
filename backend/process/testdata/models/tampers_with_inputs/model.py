"""Writes into its inputs and gives them back."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            array += 1
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", array)]))
        return responses
