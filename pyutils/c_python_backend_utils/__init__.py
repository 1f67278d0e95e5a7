"""The classes that models use, under the name that Triton builds into its stub.

Models see them in `triton_python_backend_utils` as well. The modules of this package are private; `runtime` is where
the stub plugs itself in.
"""

from typing import NoReturn

from . import missing as _missing
from .error import TritonError, TritonModelException
from .futures import async_event_future_done_callback
from .logger import Logger
from .memory import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    MemoryType,
    PreferredMemory,
    SharedMemory,
    shared_memory,
)
from .request import InferenceRequest, InferenceTrace
from .response import InferenceResponse
from .tensor import Tensor

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "PreferredMemory",
    "SharedMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "async_event_future_done_callback",
    "shared_memory",
]


def __getattr__(name: str) -> NoReturn:
    _missing.refuse(__name__, name)
