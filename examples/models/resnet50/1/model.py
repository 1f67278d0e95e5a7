"""Classifies images with ResNet-50, on the CPU or the GPU that its instance was given."""

from __future__ import annotations

import os
from typing import Any

import triton_python_backend_utils as pb_utils

WEIGHTS = "resnet50.pth"  # beside this file; the README says how to make it


class TritonPythonModel:
    """OUTPUT are the scores of the 1000 classes of ImageNet for each image of INPUT."""

    def initialize(self, args: dict[str, str]) -> None:
        self.net: Any = None
        # Your own model would simply import its packages, and fail to load without them. This one loads all
        # the same and answers with an error, so that the other examples are served where torchvision is not installed.
        try:
            import torch
            import torchvision
        except ImportError as error:
            self.missing = f"{args['model_name']}: torchvision is not installed for the Python of the models ({error})"
            pb_utils.Logger.log_warn(self.missing)
            return
        self.torch = torch
        kind = "cuda" if args["model_instance_kind"] == "GPU" else "cpu"
        self.device = torch.device(f"{kind}:{args['model_instance_device_id']}")
        torch.manual_seed(0)
        net = torchvision.models.resnet50(weights=None)
        path = os.path.join(pb_utils.get_model_dir(), WEIGHTS)
        if os.path.exists(path):
            net.load_state_dict(torch.load(path, map_location="cpu"))
        else:
            pb_utils.Logger.log_warn(f"{args['model_name']}: there is no {WEIGHTS}: the weights are random")
        self.net = net.to(self.device).eval()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            if self.net is None:
                error = pb_utils.TritonError(self.missing, pb_utils.TritonError.UNAVAILABLE)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            # DLPack hands tensors over without a copy, wherever they lie.
            image = self.torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "INPUT"))
            with self.torch.inference_mode():
                scores = self.net(image.to(self.device))
            output = pb_utils.Tensor.from_dlpack("OUTPUT", self.torch.utils.dlpack.to_dlpack(scores))
            responses.append(pb_utils.InferenceResponse([output]))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
