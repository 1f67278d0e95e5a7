"""A model that uses the whole API as intended; `mypy --strict` accepts it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import c_python_backend_utils as c
import numpy as np
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import Tensor, TritonError, TritonModelException


def handles(requests: list[pb_utils.InferenceRequest], answers: list[pb_utils.InferenceResponse]) -> list[Tensor]:
    """Evaluates annotations such as `requests: list[pb_utils.InferenceRequest]` in most models."""
    return [*requests[0].inputs(), *answers[0].output_tensors()]


class TritonPythonModel:
    logger = pb_utils.Logger

    @staticmethod
    def auto_complete_config(config: pb_utils.ModelConfig) -> pb_utils.ModelConfig:
        names = [entry["name"] for entry in config.as_dict()["input"]]
        if "IN" not in names:
            config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [4], "optional": True})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        config.set_model_transaction_policy({"decoupled": False})
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.dtype = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, "OUT")["data_type"])
        self.decoupled: bool = pb_utils.using_decoupled_model_transaction_policy(config)
        self.family = pb_utils.MetricFamily("seconds", "Time spent", pb_utils.MetricFamily.COUNTER)
        self.spent = self.family.Metric(labels={"model": args["model_name"]})
        sizes = pb_utils.MetricFamily(name="sizes", description="Sizes", kind=pb_utils.MetricFamily.HISTOGRAM)
        sizes.Metric(buckets=[1, 10]).observe(5)
        self.logger.log("ready", pb_utils.Logger.VERBOSE)
        self.directory: str = pb_utils.get_model_dir()
        if not pb_utils.is_model_ready("other", model_version="1"):
            pb_utils.load_model("other", config="{}", files={"file:1/model.py": b""})
            pb_utils.unload_model("other", unload_dependents=True)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse | None]:
        responses: list[pb_utils.InferenceResponse | None] = []
        for request in requests:
            if request.is_cancelled():
                error = pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().astype(self.dtype)
            optional = pb_utils.get_input_tensor_by_name(request, "MAYBE")
            if optional is None:
                x += 1
            out = pb_utils.Tensor("OUT", x)
            text = Tensor("TEXT", np.array([b"a", "b"], dtype=np.object_))
            passed = Tensor.from_dlpack(b"TORCH", out.to_dlpack())
            priority = json.loads(request.parameters()).get("priority", 0)
            answer = pb_utils.InferenceResponse([out, text, passed], parameters={"priority": priority, "n": len(x)})
            responses.append(answer)
            self.spent.increment(0.1)
        requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return responses

    def ask(self, request: pb_utils.InferenceRequest) -> list[pb_utils.Tensor]:
        inner = pb_utils.InferenceRequest(
            model_name=pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0],
            inputs=[pb_utils.Tensor("IN", np.zeros((1, 4), np.float32))],
            requested_output_names=["OUT"],
            correlation_id=request.correlation_id(),
            flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START | pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
            timeout=1000,
            trace=request.trace(),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
            parameters={"key": "value"},
        )
        response = inner.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        for part in inner.exec(decoupled=True):
            if part.parameters() != "":
                return part.output_tensors()
        return response.output_tensors()

    async def ask_all(self) -> np.ndarray[Any, Any]:
        request = pb_utils.InferenceRequest(inputs=(), requested_output_names=(), model_name="other")
        first, second = await asyncio.gather(request.async_exec(), request.async_exec(False))
        for part in await request.async_exec(decoupled=True):
            pb_utils.get_output_tensor_by_name(part, "OUT").as_numpy()
        code = first.error().code()
        if code == TritonError.NOT_FOUND and code.value == 2:
            raise TritonModelException(code.name)
        return second.output_tensors()[0].as_numpy()

    def send(self, request: pb_utils.InferenceRequest) -> None:
        sender: pb_utils.InferenceResponseSender = request.get_response_sender()
        sender.send(pb_utils.InferenceResponse(output_tensors=[]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def is_ready(self) -> bool:
        return c.shared_memory.free_memory() > 0
