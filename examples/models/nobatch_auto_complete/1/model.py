"""Adds and subtracts two vectors, one pair of vectors at a time. It has no config.pbtxt: it describes itself."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

    @staticmethod
    def auto_complete_config(config: pb_utils.ModelConfig) -> pb_utils.ModelConfig:
        # Values of config.pbtxt stay as they are; missing ones are added.
        known = config.as_dict()
        inputs = {tensor["name"] for tensor in known["input"]}
        outputs = {tensor["name"] for tensor in known["output"]}
        for name in "INPUT0", "INPUT1":
            if name not in inputs:
                config.add_input({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        for name in "OUTPUT0", "OUTPUT1":
            if name not in outputs:
                config.add_output({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
