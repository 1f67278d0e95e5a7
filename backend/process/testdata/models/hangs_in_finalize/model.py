"""Never returns from finalize."""

import ctypes

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]

    def finalize(self):
        ctypes.PyDLL(None).pause()  # in C, with the GIL held
