import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds and subtracts."""

    def execute(self, requests):
        return [self.answer(*(pb_utils.get_input_tensor_by_name(r, name).as_numpy() for name in "AB")) for r in requests]

    def answer(self, a, b):
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFFERENCE", a - b)])
