"""Adds up the responses to two requests that a decoupled model answers at once."""

from __future__ import annotations

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """SUM is the sum of OUT over all responses of square_int32 to IN, asked twice."""

    async def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            asked = [
                pb_utils.InferenceRequest(
                    model_name="square_int32", requested_output_names=["OUT"], inputs=[tensor]
                ).async_exec(decoupled=True)
                for _ in range(2)
            ]

            # Only the iterators are awaited; iterating over them waits synchronously.
            total = np.zeros(1, np.int64)
            for answers in await asyncio.gather(*asked):
                for answer in answers:
                    if answer.has_error():
                        raise pb_utils.TritonModelException(answer.error().message())
                    if answer.output_tensors():
                        total += pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)]))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
