import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Fails in the requested way."""

    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def answer(self, how):
        if how == "raise":
            raise ValueError("no such thing")
        if how == "die":
            os._exit(3)
        codes = {"cancelled": pb_utils.TritonError.CANCELLED, "not found": pb_utils.TritonError.NOT_FOUND}
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"it is {how}", codes[how]))
