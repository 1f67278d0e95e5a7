import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Reports its view of the request, and returns the parameters."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        seen = {
            "id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": request.parameters(),
            "wanted": sorted(request.requested_output_names()),
        }
        outputs = [pb_utils.Tensor("SEEN", np.array([json.dumps(seen).encode()], np.object_))]
        outputs += [pb_utils.Tensor("OUT", tensor.as_numpy()) for tensor in request.inputs()]
        return pb_utils.InferenceResponse(outputs, parameters=json.loads(request.parameters()))
