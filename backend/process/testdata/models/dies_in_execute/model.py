"""Ends itself in execute, in the way that the request's id names."""

import ctypes
import os
import signal

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        way = requests[0].request_id()
        if way == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        elif way == "SIGSEGV":
            ctypes.string_at(0)
        elif way == "SIGABRT":
            os.abort()
        elif way == "exit 0":
            os._exit(0)
        elif way == "exit 3":
            print("last words")
            os._exit(3)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
