"""Prints and logs more than anybody wants to read."""

import sys

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        sys.stdout.write("x" * 1_000_000 + "\n")
        for number in range(50_000):
            print("line", number)
        sys.stdout.buffer.write(b"\xff\x1b[31m no text\n")
        sys.stdout.flush()
        for number in range(30_000):
            pb_utils.Logger.log_info(f"message {number}")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
