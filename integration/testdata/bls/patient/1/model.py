import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Executes until it is cancelled. The files MARK.begun and MARK.cancelled show its progress."""

    def execute(self, requests):
        return [self.answer(request, request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def answer(self, request, mark):
        open(mark + ".begun", "w").close()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if request.is_cancelled():
                open(mark + ".cancelled", "w").close()
                return pb_utils.InferenceResponse(error=pb_utils.TritonError("as you like", pb_utils.TritonError.CANCELLED))
            if os.path.exists(mark + ".enough"):
                return pb_utils.InferenceResponse([])
            time.sleep(0.005)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("nobody has cancelled"))
