"""Adds and subtracts two vectors."""

from __future__ import annotations

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, in the types that config.pbtxt names."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.types = []
        for name in "OUTPUT0", "OUTPUT1":
            output = pb_utils.get_output_config_by_name(config, name)
            self.types.append(pb_utils.triton_string_to_numpy(output["data_type"]))

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            total = pb_utils.Tensor("OUTPUT0", (a + b).astype(self.types[0]))
            difference = pb_utils.Tensor("OUTPUT1", (a - b).astype(self.types[1]))
            responses.append(pb_utils.InferenceResponse([total, difference]))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
