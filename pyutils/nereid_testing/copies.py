"""Tensors and responses as their receiver sees them: copies made when they are sent."""

from __future__ import annotations

from typing import Any, Collection, Iterable

import numpy as np
from c_python_backend_utils.memory import DeviceMemory
from triton_python_backend_utils import InferenceRequest, InferenceResponse, Tensor, TritonError


def received(tensor: Tensor) -> Tensor:
    """Send a tensor and receive it. As in a server, a tensor sent again has its first bytes."""
    if tensor._sent is None:
        data = tensor._data
        if data is None:
            tensor._sent = tensor._bytes()
        elif isinstance(data, DeviceMemory):
            tensor._sent = data.read()
        else:
            tensor._sent = data if isinstance(data, bytes) else data.tobytes()
    copy = Tensor.__new__(Tensor)
    copy._name = tensor.name()
    copy._code = tensor._code
    copy._shape = tensor._shape
    copy._origin = tensor._sent
    copy._offset = 0
    copy._size = len(tensor._sent)
    copy._element = tensor._element
    copy._array = copy._data = copy._sent = None
    return copy


def received_response(response: InferenceResponse, wanted: Collection[str] | None) -> InferenceResponse:
    """Send a response and receive it.

    As in a server, outputs that were not requested are removed.
    """
    error = response.error()
    if error is not None:
        return error_response(TritonError(error.message(), error.code()))
    if wanted is not None:
        response._outputs = [tensor for tensor in response._outputs if tensor.name() in wanted]
    copy = InferenceResponse([received(tensor) for tensor in response._outputs])
    copy._parameters = response._parameters
    return copy


def error_response(error: TritonError) -> InferenceResponse:
    """Make a response that has only an error."""
    response = InferenceResponse(error=error)
    response._parameters = ""
    return response


def received_request(request: InferenceRequest) -> InferenceRequest:
    """Copy a BLS request, as the called model receives it."""
    copy = InferenceRequest(
        request._id,
        request._correlation,
        tensors_of(request._inputs, {}),
        list(request._wanted),
        request._model_name,
        request._model_version,
        request._flags,
        request._timeout,
        trace=request.trace(),
    )
    copy._parameters = request._parameters
    return copy


def empty_response() -> InferenceResponse:
    """Return the response that a calling model sees for a final flag alone."""
    response = InferenceResponse()
    response._parameters = ""
    return response


def tensors_of(arrays: Any, dtypes: Any) -> list[Tensor]:
    """Make received tensors from Tensors or from arrays by name.

    Lists become arrays of their dtype in dtypes.
    """
    if not hasattr(arrays, "items"):
        return [received(tensor) for tensor in _tensors(arrays)]
    return [received(Tensor(name, _array(value, dtypes.get(name)))) for name, value in arrays.items()]


def _tensors(tensors: Iterable[Any]) -> Iterable[Tensor]:
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"a tensor is {type(tensor).__name__}, want a Tensor, or a dict of arrays instead")
        yield tensor


def _array(value: Any, dtype: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, np.generic):
        array = np.array(value)
    else:
        array = np.array(value, dtype)
    return array.astype(np.object_) if array.dtype.char == "U" else array


def outputs(response: InferenceResponse) -> dict[str, np.ndarray]:
    """Return the outputs of a response as arrays by name; AssertionError if it is an error."""
    error = response.error()
    if error is not None:
        raise AssertionError(f"the response is an error, {error.code().name}: {error.message()}")
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
