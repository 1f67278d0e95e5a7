"""The classes that models use, under the name that Triton builds into its stub.

Models see them in `triton_python_backend_utils` as well. The modules of this package are private; `runtime` is where
the stub plugs itself in.
"""

from typing import NoReturn

from . import missing as _missing
from .error import TritonError, TritonModelException
from .logger import Logger
from .request import InferenceRequest, InferenceTrace
from .response import InferenceResponse
from .sender import InferenceResponseSender
from .tensor import Tensor

__all__ = [
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "Tensor",
    "TritonError",
    "TritonModelException",
]


def __getattr__(name: str) -> NoReturn:
    _missing.refuse(__name__, name)
