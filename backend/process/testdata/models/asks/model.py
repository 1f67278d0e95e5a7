"""Runs the Python text that each request brings, and answers with what came of it."""

import threading

import c_python_backend_utils as c
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.names = {"pb": pb_utils, "c": c, "np": np, "args": args, "threading": threading}

    def run(self, text):
        try:
            try:
                code = compile(text, "asked", "eval")
            except SyntaxError:
                exec(compile(text, "asked", "exec"), self.names)
                return "done"
            return repr(eval(code, self.names))
        except BaseException as error:
            return f"{type(error).__name__}: {error}"

    def execute(self, requests):
        responses = []
        for request in requests:
            text = request.inputs()[0].as_numpy().tobytes().decode()
            answer = np.frombuffer(self.run(text).encode(), np.uint8).reshape(1, -1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", answer)]))
        return responses

    def finalize(self):
        self.run(self.names.get("at_the_end", "None"))
