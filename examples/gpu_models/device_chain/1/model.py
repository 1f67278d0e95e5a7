"""Sends its input to the device, and from there twice through device_scale. The response lies on the device."""

import torch
import triton_python_backend_utils as pb_utils


def scaled(tensor):
    request = pb_utils.InferenceRequest(
        model_name="device_scale", requested_output_names=["Y"], inputs=[pb_utils.Tensor.from_dlpack("X", tensor)]
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    output = pb_utils.get_output_tensor_by_name(response, "Y")
    assert not output.is_cpu()
    return torch.from_dlpack(output)


class TritonPythonModel:
    def initialize(self, args):
        self.device = torch.device("cuda", int(args["model_instance_device_id"]))

    def execute(self, requests):
        responses = []
        for request in requests:
            x = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X")).to(self.device)
            y = scaled(scaled(x) + 1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("Y", y)]))
        return responses
