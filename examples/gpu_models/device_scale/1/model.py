"""Scales its input by 2 on the device. An input from a model on the device lies there; one from a client is sent there."""

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = torch.device("cuda", int(args["model_instance_device_id"]))

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            on_device = torch.from_dlpack(x).to(self.device)  # no copy if it lies there
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("Y", on_device * 2)]))
        return responses
