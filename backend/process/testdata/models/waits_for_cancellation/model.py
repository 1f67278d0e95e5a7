"""Answers when its request has been cancelled. The file model.py.begun says that it has begun."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        open(__file__ + ".begun", "w").close()
        responses = []
        for request in requests:
            while not request.is_cancelled():
                time.sleep(0.001)
            error = pb_utils.TritonError("nobody waits", pb_utils.TritonError.CANCELLED)
            responses.append(pb_utils.InferenceResponse(error=error))
        return responses
