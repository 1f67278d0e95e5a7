from __future__ import annotations

import os
import random
import signal

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            draw = random.randrange(400)
            if draw == 0:
                os._exit(3)
            if draw == 1:
                os.kill(os.getpid(), signal.SIGSEGV)
            print("one of many lines", "x" * random.randrange(200))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]))
        return responses
