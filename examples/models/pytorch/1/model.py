"""Adds and subtracts two vectors with a PyTorch module."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils


def make_net() -> Any:
    """Return the module; ImportError where PyTorch is not installed."""
    from torch import nn

    class AddSub(nn.Module):  # type: ignore[misc] # the checker knows no types of PyTorch
        """Works on whatever can be added and subtracted, numpy's arrays too."""

        def forward(self, a: Any, b: Any) -> tuple[Any, Any]:
            return a + b, a - b

    return AddSub().eval()


class TritonPythonModel:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

    def initialize(self, args: dict[str, str]) -> None:
        self.net = None
        # Your own model would simply import its packages, and fail to load without them. This one loads all
        # the same and answers with an error, so that the other examples are served where PyTorch is not installed.
        try:
            self.net = make_net()
        except ImportError as error:
            self.missing = f"{args['model_name']}: torch is not installed for the Python of the models ({error})"
            pb_utils.Logger.log_warn(self.missing)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            if self.net is None:
                error = pb_utils.TritonError(self.missing, pb_utils.TritonError.UNAVAILABLE)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            total, difference = self.net(a, b)
            outputs = [pb_utils.Tensor("OUTPUT0", total), pb_utils.Tensor("OUTPUT1", difference)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
