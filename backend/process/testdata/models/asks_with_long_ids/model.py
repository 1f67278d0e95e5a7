"""Makes BLS requests whose strings are longer than those of a client may be, and returns the errors."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

LONG = "x" * (32 << 20)


class TritonPythonModel:
    def execute(self, requests):
        errors = [
            self.ask(request_id=LONG),
            self.ask(model=LONG),
            self.ask(parameters={"p": LONG}),
            self.ask(parameters={"p": LONG[: 2 << 20]}),
            self.ask(parameters={LONG[:5000]: 1}),
            self.ask(correlation_id=LONG),
            self.ask(request_id=LONG[: 64 << 10]),
        ]
        text = np.array([[e.encode() for e in errors]], dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", text)]) for _ in requests]

    def ask(self, model="identity", **strings):
        inputs = [pb_utils.Tensor("IN0", np.zeros((1, 4), np.uint8))]
        response = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT0"], inputs=inputs, **strings).exec()
        return response.error().message() if response.has_error() else ""
