"""Says much: in the error of a response, of a batch, in a parameter, or in many parameters; the id of a request tells where."""

import numpy as np
import triton_python_backend_utils as pb_utils

MUCH = 20 << 20


class TritonPythonModel:
    def execute(self, requests):
        how = requests[0].request_id()
        if how == "batch":
            raise ValueError("x" * MUCH)
        return [self.answer(how) for _ in requests]

    def answer(self, how):
        if how == "error":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("x" * MUCH))
        if how == "more":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("x" * 2 * MUCH))
        parameters = {"p": "x" * MUCH} if how == "parameter" else {"%d" % i: i for i in range(1 << 15)}
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.zeros((1, 1), np.uint8))], parameters=parameters)
