"""Answers each request with as many responses as its value says, from a thread for each."""

from __future__ import annotations

import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """IN times OUT = IN; none if IN is 0."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if not pb_utils.using_decoupled_model_transaction_policy(config):
            raise pb_utils.TritonModelException(
                f"{args['model_name']} sends several responses: config.pbtxt needs "
                "model_transaction_policy { decoupled: true }"
            )
        tensors = pb_utils.get_input_config_by_name(config, "IN"), pb_utils.get_output_config_by_name(config, "OUT")
        for tensor in tensors:
            if tensor is None or tensor["data_type"] != "TYPE_INT32" or tensor["dims"] != [1]:
                raise pb_utils.TritonModelException(f"IN and OUT are TYPE_INT32 of dims [ 1 ], not {tensor}")
        self.running = 0  # threads that still send
        self.changed = threading.Condition()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            with self.changed:
                self.running += 1
            # Requests are answered side by side, and the next ones taken at once.
            threading.Thread(target=self.send, args=(request.get_response_sender(), value), daemon=True).start()

    def send(self, sender: pb_utils.InferenceResponseSender, value: np.ndarray) -> None:
        try:
            for _ in range(int(value[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        finally:
            with self.changed:
                self.running -= 1
                self.changed.notify_all()

    def finalize(self) -> None:
        with self.changed:
            while not self.changed.wait_for(lambda: self.running == 0, timeout=5):
                pb_utils.Logger.log_info(f"{self.running} threads are still sending")
        print("Cleaning up...")
