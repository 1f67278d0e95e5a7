"""Has the identity model execute its requests, each as often at once as its parameter says."""

import asyncio
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
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
