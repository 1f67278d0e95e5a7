"""Mistakes that a type checker must find: `mypy --strict` rejects an unused `ignore`."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils


def execute(requests: list[pb_utils.InferenceRequest]) -> None:
    tensor = pb_utils.Tensor("OUT", np.zeros(1))
    pb_utils.Tensor("OUT", [1.0])  # type: ignore[arg-type]
    pb_utils.Tensor(name="OUT", array=np.zeros(1))  # type: ignore[call-arg]
    pb_utils.Tensor("OUT")  # type: ignore[call-arg]
    tensor.as_nump()  # type: ignore[attr-defined]
    tensor.name = "OTHER"  # type: ignore[assignment, method-assign]
    pb_utils.get_input_tensor_by_name(requests[0], "IN").numpy()  # type: ignore[union-attr]
    pb_utils.InferenceResponse(None)  # type: ignore[arg-type]
    pb_utils.InferenceResponse(tensor)  # type: ignore[arg-type]
    pb_utils.InferenceResponse(error="bad")  # type: ignore[arg-type]
    pb_utils.InferenceResponse(parameters={"half": 0.5})  # type: ignore[dict-item]
    pb_utils.TritonError("bad", 1)  # type: ignore[arg-type]
    raise pb_utils.TritonError("bad")  # type: ignore[misc]


async def ask(request: pb_utils.InferenceRequest) -> None:
    pb_utils.InferenceRequest(model_name="m", inputs=[])  # type: ignore[call-overload]
    pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names="OUT")  # type: ignore[call-overload]
    pb_utils.InferenceRequest(model_name="m", inputs=[1], requested_output_names=[])  # type: ignore[list-item]
    pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[], timeout=0.5)  # type: ignore[call-overload]
    request.exec(decoupled=True).output_tensors()  # type: ignore[attr-defined]
    request.async_exec().output_tensors()  # type: ignore[attr-defined]
    request.parameters()["key"]  # type: ignore[index]
    request.model_name()  # type: ignore[attr-defined]
    request.get_response_sender().close()  # type: ignore[attr-defined]
    pb_utils.InferenceResponseSender()  # type: ignore[call-arg]
    pb_utils.Logger()  # type: ignore[call-arg]
    pb_utils.Logger.log_warning("late")  # type: ignore[attr-defined]
    pb_utils.Logger.log("late", 1)  # type: ignore[arg-type]
    pb_utils.PreferredMemory(1)  # type: ignore[arg-type]
    pb_utils.MetricFamily("name", "text", 0)  # type: ignore[arg-type]
    pb_utils.TritonInferenceException("bad")  # type: ignore[attr-defined]
    pb_utils.TritonError.INTERNAL = pb_utils.TritonError.UNKNOWN  # type: ignore[misc]
