"""The module that `model.py` imports, usually as pb_utils: classes, constants and helpers."""

import json as json
import struct as struct
from collections.abc import Mapping
from typing import Any, Final

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
from numpy.typing import NDArray

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

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START: Final = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END: Final = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL: Final = 1
TRITONSERVER_REQUEST_RELEASE_ALL: Final = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE: Final = 2

#: The numpy types by the names of data types in configs, such as TYPE_FP32.
TRITON_STRING_TO_NUMPY: Final[dict[str, Any]]

# These return Any besides None, like re.Match.group of the standard library. None is only returned
# for optional inputs and unknown names, so that most models need no check.

def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | Any:
    """Return the first input with this name, or None if an optional input was not given."""

def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | Any:
    """Return the first output of the response with this name, or None."""

def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | Any:
    """Return the entry of an input in a config (`json.loads(args["model_config"])`), or None."""

def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | Any:
    """Return the entry of an output in a config, or None."""

def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Return whether a config makes the model decoupled."""

def triton_to_numpy_type(data_type: int) -> Any:
    """Return the numpy type of one of Triton's data type numbers, or None."""

def numpy_to_triton_type(data_type: object) -> int | None:
    """Return Triton's number of a numpy scalar type or dtype, or None."""

def triton_string_to_numpy(triton_type_string: str) -> Any:
    """Return the numpy type of a config's data type such as TYPE_FP32, or raise KeyError."""

def serialize_byte_tensor(input_tensor: NDArray[Any]) -> bytes | tuple[()] | None:
    """Serialise an array of dtype object or S. Returns () if it is empty, None for other dtypes."""

def deserialize_bytes_tensor(encoded_tensor: bytes | bytearray | memoryview) -> NDArray[np.object_]:
    """Make a one-dimensional object array of bytes; struct.error for truncated data."""

def get_model_dir() -> str:
    """Return the directory of the model's version, which contains its files."""

class ModelConfig:
    """The config that `auto_complete_config` completes and returns.

    Changes that contradict config.pbtxt raise ValueError.
    """

    def __init__(self, model_config: str) -> None: ...
    def as_dict(self) -> dict[str, Any]:
        """Return the config itself, not a copy. Change it only through the methods here."""

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch, at least that of config.pbtxt; 0 turns batching off."""

    def set_dynamic_batching(self) -> None:
        """Choose dynamic batching."""

    def add_input(self, input: dict[str, Any]) -> None:  # noqa: A002  # the name is the contract's
        """Add or complete an input: `name`, `data_type`, `dims` and optionally `optional`."""

    def add_output(self, output: dict[str, Any]) -> None:
        """Add or complete an output: `name`, `data_type` and `dims`."""

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, bool]) -> None:
        """Make the model decoupled: `{"decoupled": True}`."""
