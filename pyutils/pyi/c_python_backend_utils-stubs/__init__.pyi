"""The types of the API for models. Most models import it as `triton_python_backend_utils`."""

import asyncio
import concurrent.futures
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, Protocol, SupportsFloat, SupportsIndex, TypeVar, final, overload

from numpy.typing import NDArray
from typing_extensions import Never, Self, TypeAlias

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

_Text: TypeAlias = str | bytes | bytearray
_Parameters: TypeAlias = Mapping[str, bool | int | str]
_T_co = TypeVar("_T_co", covariant=True)

class _List(Protocol[_T_co]):
    """A list, tuple or one-dimensional array, but not a str, bytes, set or generator."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_T_co]: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __getitem__(self, index: SupportsIndex, /) -> _T_co: ...

class _Enumeration:
    """Members equal their numbers and print as Type.NAME. They are not ordered."""

    __members__: ClassVar[dict[str, Any]]
    def __init__(self, value: SupportsIndex) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class Tensor:
    """A named array: an input of a request or an output of a response."""

    def __init__(self, name: _Text, array: NDArray[Any], /) -> None:
        """Make a tensor from a numpy array.

        A C-contiguous array is kept, not copied, and read when the tensor is sent. Strings (dtype
        object or S) are read now. Raises TritonModelException for an empty name and for dtypes that
        Triton does not support, such as unicode ("U"), complex and datetime.
        """

    def name(self) -> str:
        """Return the tensor's name."""

    def shape(self) -> list[int]:
        """Return the dimensions, including the batch dimension if any, as a new list."""

    def as_numpy(self) -> NDArray[Any]:
        """Return the tensor as an array. Each call returns the same object.

        Inputs are private to the model, which may write to them. Strings are an object array of
        `bytes`. Raises TritonModelException for tensors on a GPU and for BF16, which numpy lacks.
        """

    def triton_dtype(self) -> int:
        """Return Triton's number of the data type.

        1 is BOOL, 2 to 5 are UINT8 to UINT64, 6 to 9 INT8 to INT64, 10 to 12 FP16 to FP64, 13 is
        BYTES, 14 is BF16.
        """

    def is_cpu(self) -> bool:
        """Return whether the tensor is in CPU memory.

        Only tensors that `from_dlpack` made from GPU tensors are not.
        """

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule of the tensor's memory, for libraries that require a capsule."""

    @staticmethod
    def from_dlpack(name: _Text, tensor: object, /) -> Tensor:
        """Make a tensor from an object with `__dlpack__`, or from a capsule, without a copy.

        It must be C-contiguous and may be on a CUDA device. Its memory is read when the tensor is
        sent. For CPU memory, `as_numpy` returns a snapshot taken now.
        """

    def __dlpack__(self, stream: object = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class InferenceTrace:
    """The trace of a request. `request.trace()` returns it, and BLS requests accept it."""

    def __init__(self, _: Never, /) -> None: ...
    def get_context(self) -> str | None:
        """Return the OpenTelemetry context to propagate, as JSON text, or None."""

class MemoryType(_Enumeration):
    TRITONSERVER_MEMORY_GPU: ClassVar[MemoryType]
    TRITONSERVER_MEMORY_CPU: ClassVar[MemoryType]

TRITONSERVER_MEMORY_GPU: Final[MemoryType]
TRITONSERVER_MEMORY_CPU: Final[MemoryType]

class PreferredMemory:
    """The preferred memory for the outputs of a BLS request."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: SupportsIndex = 0) -> None: ...

class InferenceRequest:
    """A request passed to `execute`, or a request that the model makes to another model (BLS)."""

    @overload
    def __init__(
        self,
        request_id: _Text = "",
        correlation_id: int | str = 0,
        *,
        inputs: _List[Tensor],
        requested_output_names: _List[_Text],
        model_name: _Text,
        model_version: SupportsIndex = -1,
        flags: SupportsIndex = 0,
        timeout: SupportsIndex = 0,
        preferred_memory: PreferredMemory = ...,
        trace: InferenceTrace = ...,
        parameters: _Parameters | None = None,
    ) -> None:
        """Make a request to another model, to be sent with `exec` or `async_exec`.

        An empty list of output names requests all outputs. With version -1, the server chooses the
        version. `timeout` is in microseconds. `flags` combines TRITONSERVER_REQUEST_FLAG_SEQUENCE_*
        flags.
        """

    @overload
    def __init__(
        self,
        request_id: _Text,
        correlation_id: int | str,
        inputs: _List[Tensor],
        requested_output_names: _List[_Text],
        model_name: _Text,
        model_version: SupportsIndex = -1,
        flags: SupportsIndex = 0,
        timeout: SupportsIndex = 0,
        preferred_memory: PreferredMemory = ...,
        trace: InferenceTrace = ...,
        parameters: _Parameters | None = None,
    ) -> None: ...
    def inputs(self) -> list[Tensor]:
        """Return the inputs as a new list, in no particular order."""

    def request_id(self) -> str:
        """Return the id that the client gave, or ""."""

    def correlation_id(self) -> int | str:
        """Return the id of the sequence, an int or str as the client sent it, or 0."""

    def flags(self) -> int:
        """Return TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END, combined with or."""

    def set_flags(self, flags: SupportsIndex, /) -> None:
        """Replace the flags."""

    def timeout(self) -> int:
        """Return the timeout in microseconds, or 0 if there is no timeout."""

    def parameters(self) -> str:
        """Return the custom parameters as the text of a JSON object."""

    def requested_output_names(self) -> set[str]:
        """Return the outputs that the client requested: all outputs if it named none."""

    def trace(self) -> InferenceTrace:
        """Return the trace of this request, for BLS requests made on its behalf."""

    def is_cancelled(self) -> bool:
        """Return whether the client has gone away. Always False for BLS requests."""

    def get_response_sender(self) -> InferenceResponseSender:
        """Return the sender of this request's responses. Each call returns the same object."""

    def set_release_flags(self, flags: SupportsIndex, /) -> None:
        """Set whether the request is released when `execute` returns.

        With TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, `execute` receives this request again; return
        None for it this time. This is for models with `sequence_batching { iterative_sequence: true
        }`.
        """

    @overload
    def exec(self, decoupled: Literal[False] = False) -> InferenceResponse:
        """Send the request to its model and wait for the response.

        If the request fails, the response has the error. Raises TritonModelException outside of
        `execute`.
        """

    @overload
    def exec(self, decoupled: Literal[True]) -> ResponseIterator:
        """Send the request and wait for its first response. The iterator yields all of them."""

    @overload
    def exec(self, decoupled: bool) -> InferenceResponse | ResponseIterator: ...
    @overload
    def async_exec(self, decoupled: Literal[False] = False) -> asyncio.Future[InferenceResponse]:
        """Send the request at once and return a future. Needs a running event loop."""

    @overload
    def async_exec(self, decoupled: Literal[True]) -> asyncio.Future[ResponseIterator]:
        """Send the request at once and return a future. Iterating over its result blocks."""

    @overload
    def async_exec(self, decoupled: bool) -> asyncio.Future[InferenceResponse] | asyncio.Future[ResponseIterator]: ...

class InferenceResponse:
    """The response to one request: output tensors, or an error."""

    def __init__(
        self,
        output_tensors: _List[Tensor] = [],
        error: TritonError | None = None,
        parameters: _Parameters | None = None,
    ) -> None:
        """Make a response. With an error, the client receives nothing else."""

    def output_tensors(self) -> list[Tensor]:
        """Return the outputs as a new list. Sending removes outputs that were not requested."""

    def has_error(self) -> bool:
        """Return whether the response is an error."""

    def error(self) -> Any | TritonError:
        """Return the error, or None."""

    def parameters(self) -> str:
        """Return the parameters as the text of a JSON object.

        For BLS responses that are an error or an empty final response, this is "".
        """

class InferenceResponseSender:
    """Sends the responses to one request, from any thread, even after `execute` has returned."""

    def __init__(self, _: Never, /) -> None: ...
    def send(self, response: InferenceResponse | None = None, flags: SupportsIndex = 0) -> None:
        """Send a response. TRITONSERVER_RESPONSE_COMPLETE_FINAL marks the last one.

        The flag can also be sent without a response. Raises TritonModelException after the last
        response. Models that are not decoupled send exactly one response.
        """

    def is_cancelled(self) -> bool:
        """Return whether the client has gone away."""

    async def cancelled(self) -> bool:
        """Wait until the client goes away (True) or the request is complete (False).

        Triton lacks this method.
        """

class ResponseIterator:
    """Iterates over the responses to a BLS request. The last one may have no outputs.

    A loop that was interrupted continues where it stopped. A loop after the last response starts
    from the first one. `async for`, which Triton does not support, does not block the event loop.
    """

    def __init__(self, response: InferenceResponse, /) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> InferenceResponse: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> InferenceResponse: ...
    def cancel(self) -> None:
        """Request cancellation. Remaining responses, the last an error, must still be read."""

class TritonError:
    """An error to respond with. It is not an exception: TritonModelException is."""

    class _Code(_Enumeration):
        UNKNOWN: ClassVar[TritonError._Code]
        INTERNAL: ClassVar[TritonError._Code]
        NOT_FOUND: ClassVar[TritonError._Code]
        INVALID_ARG: ClassVar[TritonError._Code]
        UNAVAILABLE: ClassVar[TritonError._Code]
        UNSUPPORTED: ClassVar[TritonError._Code]
        ALREADY_EXISTS: ClassVar[TritonError._Code]
        CANCELLED: ClassVar[TritonError._Code]

    UNKNOWN: Final[_Code]
    INTERNAL: Final[_Code]
    NOT_FOUND: Final[_Code]
    INVALID_ARG: Final[_Code]
    UNAVAILABLE: Final[_Code]
    UNSUPPORTED: Final[_Code]
    ALREADY_EXISTS: Final[_Code]
    CANCELLED: Final[_Code]

    def __init__(self, message: _Text, code: _Code = ...) -> None:
        """Make an error with the text for the client. The default code is INTERNAL."""

    def code(self) -> _Code:
        """Return one of the codes of this class, such as TritonError.NOT_FOUND."""

    def message(self) -> str:
        """Return the text."""

class TritonModelException(Exception):
    """The exception raised by functions of this module. Models may raise it too."""

class Logger:
    """Writes to the server's log, with the file and line of the caller."""

    class LogLevel(_Enumeration):
        INFO: ClassVar[Logger.LogLevel]
        WARNING: ClassVar[Logger.LogLevel]
        ERROR: ClassVar[Logger.LogLevel]
        VERBOSE: ClassVar[Logger.LogLevel]

    INFO: ClassVar[LogLevel]
    WARNING: ClassVar[LogLevel]
    ERROR: ClassVar[LogLevel]
    VERBOSE: ClassVar[LogLevel]

    def __init__(self, _: Never, /) -> None: ...
    @staticmethod
    def log(message: _Text, level: LogLevel = ...) -> None:
        """Log at a level of this class, by default INFO."""

    @staticmethod
    def log_info(message: _Text) -> None: ...
    @staticmethod
    def log_warn(message: _Text) -> None: ...
    @staticmethod
    def log_error(message: _Text) -> None: ...
    @staticmethod
    def log_verbose(message: _Text) -> None:
        """Log if the server runs with `--log-verbose`."""

class MetricKind(_Enumeration):
    COUNTER: ClassVar[MetricKind]
    GAUGE: ClassVar[MetricKind]
    HISTOGRAM: ClassVar[MetricKind]

COUNTER: Final[MetricKind]
GAUGE: Final[MetricKind]
HISTOGRAM: Final[MetricKind]

class Metric:
    """One series of a MetricFamily, made by `family.Metric(…)`."""

    def __init__(self, _: Never, /) -> None: ...
    def increment(self, value: SupportsFloat, /) -> None:
        """Add to a counter or gauge. Counters reject negative values."""

    def set(self, value: SupportsFloat, /) -> None:
        """Set a gauge."""

    def observe(self, value: SupportsFloat, /) -> None:
        """Add an observation to a histogram."""

    def value(self) -> float:
        """Return the value of a counter or gauge."""

_Metric: TypeAlias = Metric

class MetricFamily:
    """A metric name on the server's /metrics. Keep it while its metrics are in use.

    Instances that make the same family and labels share the values.
    """

    COUNTER: ClassVar[MetricKind]
    GAUGE: ClassVar[MetricKind]
    HISTOGRAM: ClassVar[MetricKind]

    def __init__(self, name: _Text, description: _Text, kind: MetricKind) -> None: ...
    def Metric(
        self, labels: dict[str, str] | None = None, buckets: list[float] | list[int] | None = None
    ) -> _Metric:
        """Make the metric with these labels.

        Histograms need the upper bounds of their buckets in ascending order.
        """

@final
class SharedMemory:
    """The memory of the process for its own tensors."""

    def __init__(self, _: Never, /) -> None: ...
    def free_memory(self) -> int:
        """Return the number of bytes that can still be allocated."""

shared_memory: Final[SharedMemory]

def load_model(model_name: _Text, config: _Text = "", files: dict[str, bytes] | None = None) -> None:
    """Load or reload a model and wait until it is ready.

    The server must be in explicit control mode. `config` is JSON that replaces config.pbtxt.
    `files` maps `file:<path in the model's directory>` to contents. Raises TritonModelException.
    """

def unload_model(model_name: _Text, unload_dependents: bool = False) -> None:
    """Start unloading a model. Raises TritonModelException."""

def is_model_ready(model_name: _Text, model_version: _Text = "") -> bool:
    """Return whether a model, or one version of it, is ready.

    Raises TritonModelException if it does not exist.
    """

def async_event_future_done_callback(py_future: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    """Log the exception of a failed future. Pass this function to `add_done_callback`."""
