"""Passes its requests to the identity model, each as many times at once as its parameter says."""

from __future__ import annotations

import asyncio
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [await self.answer(request) for request in requests]

    async def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        calls = json.loads(request.parameters())["calls"]
        responses = await asyncio.gather(*[
            pb_utils.InferenceRequest(
                model_name="identity", requested_output_names=["OUTPUT0"], inputs=request.inputs()
            ).async_exec()
            for _ in range(calls)
        ])
        for response in responses:
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(responses[0].output_tensors())
