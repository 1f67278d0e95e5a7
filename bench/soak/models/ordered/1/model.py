from __future__ import annotations

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def answer(sender: pb_utils.InferenceResponseSender, n: int) -> None:
    if n == 0:
        time.sleep(5)
    for i in range(n):
        if sender.is_cancelled():
            break
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full((1, 1024), i, np.int32))]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        for request in requests:
            n = int(request.inputs()[0].as_numpy().flat[0])
            threading.Thread(target=answer, args=(request.get_response_sender(), n), daemon=True).start()
