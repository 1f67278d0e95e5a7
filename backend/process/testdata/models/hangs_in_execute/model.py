"""Never returns from execute, unless it is asked to; the id says where it hangs."""

import ctypes
import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        where = requests[0].request_id()
        if where == "Python":
            while True:
                pass
        elif where == "a lock":
            threading.Event().wait()
        elif where == "C with the GIL":
            ctypes.PyDLL(None).pause()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
