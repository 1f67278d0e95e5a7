"""Asks two models at once and takes an output from each."""

from __future__ import annotations

import asyncio
import json

import triton_python_backend_utils as pb_utils

MODELS = "pytorch", "add_sub"


class TritonPythonModel:
    """OUTPUT0 is that of the first model, OUTPUT1 that of the second.

    The parameter "models" of a request names other models than MODELS, with a blank between the two.
    """

    async def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            parameters = json.loads(request.parameters())
            models = parameters["models"].split() if "models" in parameters else MODELS
            inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]

            # async_exec returns at once; gather waits for both answers.
            asked = [
                pb_utils.InferenceRequest(
                    model_name=model, requested_output_names=["OUTPUT0", "OUTPUT1"], inputs=inputs
                ).async_exec()
                for model in models
            ]
            first, second = await asyncio.gather(*asked)

            for answer in first, second:
                if answer.has_error():
                    raise pb_utils.TritonModelException(answer.error().message())
            outputs = [
                pb_utils.get_output_tensor_by_name(first, "OUTPUT0"),
                pb_utils.get_output_tensor_by_name(second, "OUTPUT1"),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
