"""Lasts as long as its request's id says: "until PATH" exists, or so many µs; at "kill PATH" it ends itself then."""

import os
import signal
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        how, _, path = requests[0].request_id().strip().partition(" ")
        if path:
            while not os.path.exists(path):
                time.sleep(0.001)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        elif how:
            time.sleep(int(how) / 1e6)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy() + 1)]) for r in requests]
