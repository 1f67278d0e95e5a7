"""Makes a BLS request that has any number of responses, and a second one, and reads neither until it is told to."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        first, second = self.ask(), self.ask()
        count = 0
        error = ""
        next(first)
        self.wait()
        for response in first:
            if response.has_error():
                error = response.error().message()
                break
            count += 1
        del first, second
        out = pb_utils.Tensor("OUT0", np.array([[error.encode()]], dtype=np.object_))
        return [pb_utils.InferenceResponse([out]) for _ in requests]

    def ask(self):
        inputs = [pb_utils.Tensor("IN0", np.zeros((1, 4), np.uint8))]
        return iter(pb_utils.InferenceRequest(model_name="floods", requested_output_names=["OUT0"], inputs=inputs).exec(decoupled=True))

    def wait(self):
        # The other model answers when the test has seen enough.
        inputs = [pb_utils.Tensor("IN0", np.zeros((1, 4), np.uint8))]
        pb_utils.InferenceRequest(model_name="gate", requested_output_names=["OUT0"], inputs=inputs).exec()
