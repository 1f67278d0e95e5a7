"""Sends small responses until it is told that nobody wants them."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            threading.Thread(target=self.flood, args=(r.get_response_sender(),)).start()

    def flood(self, sender):
        while not sender.is_cancelled():
            for _ in range(64):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.zeros((1, 4096), np.uint8))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
