import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Calls others from a coroutine."""

    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        case = request.inputs()[0].as_numpy()[0].decode()
        result = await getattr(self, "case_" + case)()
        return pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", np.array([str(result or "good").encode()], np.object_))])

    def call(self, n):
        array = np.full(n, n, np.float32)
        return pb_utils.InferenceRequest(
            model_name="identity", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", array)]
        )

    async def case_one(self):
        response = await self.call(3).async_exec()
        assert response.output_tensors()[0].as_numpy().tolist() == [3, 3, 3]

    async def case_many(self):
        sizes = [n * 37 % 3000 for n in range(200)]
        responses = await asyncio.gather(*[self.call(n).async_exec() for n in sizes])
        for n, response in zip(sizes, responses):
            array = response.output_tensors()[0].as_numpy()
            assert array.shape == (n,) and (array == n).all()

    async def case_sync_exec(self):
        assert self.call(3).exec().output_tensors()[0].shape() == [3]

    async def case_task_of_another(self):
        task = asyncio.ensure_future(self.later())
        await asyncio.sleep(0)
        assert await task == [3]

    async def later(self):
        return (await self.call(3).async_exec()).output_tensors()[0].shape()
