"""The classes that models use, in a module with the name that Triton compiles into its stub.

`triton_python_backend_utils` imports them as well. The modules of this package are private; the
stub attaches itself through `runtime`.
"""

from .control import is_model_ready, load_model, unload_model
from .error import TritonError, TritonModelException
from .futures import async_event_future_done_callback
from .iterator import ResponseIterator
from .logger import Logger
from .memory import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    MemoryType,
    PreferredMemory,
    SharedMemory,
    shared_memory,
)
from .metric import COUNTER, GAUGE, HISTOGRAM, Metric, MetricFamily, MetricKind
from .request import InferenceRequest, InferenceTrace
from .response import InferenceResponse
from .sender import InferenceResponseSender
from .tensor import Tensor

__all__ = [
    "COUNTER",
    "GAUGE",
    "HISTOGRAM",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "PreferredMemory",
    "ResponseIterator",
    "SharedMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "async_event_future_done_callback",
    "is_model_ready",
    "load_model",
    "shared_memory",
    "unload_model",
]
