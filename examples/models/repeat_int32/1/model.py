"""Answers a request with as many responses as it has elements, from a thread of its own."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Response i: OUT is element i of IN, IDX is i. It comes DELAY[i] ms after the one before.

    WAIT is how many ms execute takes; responses come meanwhile and afterwards.
    """

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if not pb_utils.using_decoupled_model_transaction_policy(config):
            raise pb_utils.TritonModelException(
                f"{args['model_name']} sends several responses: config.pbtxt needs "
                "model_transaction_policy { decoupled: true }"
            )
        parameter = config.get("parameters", {}).get("output_num_elements", {})
        self.repeats = int(parameter.get("string_value", "1"))
        self.running = 0  # threads that still send
        self.changed = threading.Condition()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        if len(requests) != 1:
            raise pb_utils.TritonModelException(f"got a batch of {len(requests)} requests, want one")
        request = requests[0]
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        delays = pb_utils.get_input_tensor_by_name(request, "DELAY").as_numpy()
        wait = pb_utils.get_input_tensor_by_name(request, "WAIT").as_numpy()
        if values.shape != delays.shape:
            raise pb_utils.TritonModelException(
                f"IN and DELAY have different shapes: {list(values.shape)} and {list(delays.shape)}"
            )

        with self.changed:
            self.running += 1
        sender = request.get_response_sender()
        threading.Thread(target=self.send, args=(sender, values, delays), daemon=True).start()

        # The next request is taken when execute has returned; the thread sends on.
        time.sleep(int(wait[0]) / 1000)

    def send(self, sender: pb_utils.InferenceResponseSender, values: np.ndarray, delays: np.ndarray) -> None:
        try:
            for i, (value, delay) in enumerate(zip(values, delays)):
                if delay:
                    time.sleep(int(delay) / 1000)
                out = pb_utils.Tensor("OUT", np.full(self.repeats, value, np.int32))
                index = pb_utils.Tensor("IDX", np.array([i], np.uint32))
                sender.send(pb_utils.InferenceResponse([out, index]))
            # Each request has to end so, even one that got no response.
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
