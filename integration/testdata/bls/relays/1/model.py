import threading

import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Forwards the responses of the repeating model, in a coroutine or in a thread that outlives execute."""

    async def execute(self, requests):
        for request in requests:
            how = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy()[0].decode()
            if "relayed_by_thread" in how:
                threading.Thread(target=self.pass_on, args=(request,)).start()
                continue
            sender = request.get_response_sender()
            async for response in await self.call(request).async_exec(decoupled=True):
                if response.output_tensors():
                    sender.send(pb_utils.InferenceResponse(response.output_tensors()))
            sender.send(flags=FINAL)

    def pass_on(self, request):
        sender = request.get_response_sender()
        for response in self.call(request).exec(decoupled=True):
            if response.output_tensors():
                sender.send(pb_utils.InferenceResponse(response.output_tensors()))
        sender.send(flags=FINAL)

    def call(self, request):
        return pb_utils.InferenceRequest(
            model_name="repeat", requested_output_names=["OUT"], inputs=request.inputs()
        )
