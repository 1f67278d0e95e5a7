"""Has the identity model execute its requests."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        response = pb_utils.InferenceRequest(
            model_name="identity", requested_output_names=["OUTPUT0"], inputs=request.inputs()
        ).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(response.output_tensors())
