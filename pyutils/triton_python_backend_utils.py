"""The module that `model.py` imports, usually as pb_utils: classes, constants and helpers."""

import json
import struct
from typing import Any, Dict, NoReturn, Optional, Tuple, Union

import numpy as np
from c_python_backend_utils import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    InferenceTrace,
    Logger,
    MemoryType,
    Metric,
    MetricFamily,
    PreferredMemory,
    ResponseIterator,
    Tensor,
    TritonError,
    TritonModelException,
    is_model_ready,
    load_model,
    unload_model,
)
from c_python_backend_utils import runtime as _runtime
from c_python_backend_utils import strings as _strings
from c_python_backend_utils.modelconfig import ModelConfig

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "json",
    "load_model",
    "np",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "struct",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

TRITON_STRING_TO_NUMPY: Dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

_TRITON_TO_NUMPY: Dict[int, Any] = {
    1: np.bool_,
    2: np.uint8,
    3: np.uint16,
    4: np.uint32,
    5: np.uint64,
    6: np.int8,
    7: np.int16,
    8: np.int32,
    9: np.int64,
    10: np.float16,
    11: np.float32,
    12: np.float64,
    13: np.object_,
}


# These access the objects' slots if possible: models call them for each tensor of each request.


def get_input_tensor_by_name(inference_request: Any, name: str) -> Optional[Tensor]:
    """Return the first input of the request with this name, or None."""
    if inference_request.__class__ is InferenceRequest:
        return _first(inference_request._inputs, name)
    return _first(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: Any, name: str) -> Optional[Tensor]:
    """Return the first output of the response with this name, or None."""
    if inference_response.__class__ is InferenceResponse:
        return _first(inference_response._outputs, name)
    return _first(inference_response.output_tensors(), name)


def _first(tensors: Any, name: str) -> Optional[Tensor]:
    for tensor in tensors:
        if tensor.__class__ is Tensor:
            own = tensor._name
            if own.__class__ is str:
                if own == name:
                    break
                continue
        if tensor.name() == name:
            break
    else:
        return None
    found: Tensor = tensor
    return found


def get_input_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """Return the entry of an input in a config (`json.loads(args["model_config"])`), or None."""
    return _entry(model_config, "input", name)


def get_output_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """Return the entry of an output in a config, or None."""
    return _entry(model_config, "output", name)


def _entry(model_config: Dict[str, Any], key: str, name: str) -> Optional[Dict[str, Any]]:
    if key in model_config:
        for entry in model_config[key]:
            if entry["name"] == name:
                found: Dict[str, Any] = entry
                return found
    return None


def using_decoupled_model_transaction_policy(model_config: Dict[str, Any]) -> bool:
    """Return whether a config makes the model decoupled."""
    if "model_transaction_policy" not in model_config:
        return False
    decoupled: bool = model_config["model_transaction_policy"]["decoupled"]
    return decoupled


def triton_to_numpy_type(data_type: int) -> Any:
    """Return the numpy type of one of Triton's data type numbers, or None."""
    return _TRITON_TO_NUMPY.get(data_type)


def numpy_to_triton_type(data_type: Any) -> Optional[int]:
    """Return Triton's number of a numpy scalar type or dtype, or None."""
    for number, numpy_type in _TRITON_TO_NUMPY.items():
        if data_type == numpy_type:
            return number
    return 13 if data_type == np.bytes_ else None


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """Return the numpy type of a config's data type such as TYPE_FP32, or raise KeyError."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: np.ndarray) -> Union[bytes, Tuple[()], None]:
    """Serialise an array of dtype object or S. Returns () if it is empty, None for other dtypes."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.char not in "OS":
        return None
    return _strings.encode(input_tensor)[0]


def deserialize_bytes_tensor(encoded_tensor: Any) -> np.ndarray:
    """Make a one-dimensional object array of bytes; struct.error for truncated data."""
    data = encoded_tensor if encoded_tensor.__class__ is bytes else bytes(memoryview(encoded_tensor))
    try:
        return _strings.decode(data)
    except _strings.Malformed:
        _raise_struct_error(data)


def _raise_struct_error(data: bytes) -> NoReturn:
    """Read malformed data element by element, to fail with struct's own text, as in Triton."""
    at = 0
    while True:
        (length,) = struct.unpack_from("<I", data, at)
        struct.unpack_from(f"<{length}s", data, at + 4)
        at += 4 + length


def get_model_dir() -> str:
    """Return the directory of the model's version."""
    return _runtime.current().model_directory()
