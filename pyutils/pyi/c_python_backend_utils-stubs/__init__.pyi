"""The types of what models use. Most models import them from `triton_python_backend_utils`."""

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
    """A list, tuple or one-dimensional array, but no str, bytes, set or generator."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_T_co]: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __getitem__(self, index: SupportsIndex, /) -> _T_co: ...

class _Enumeration:
    """Members equal their numbers and are printed as Type.NAME. They have no order."""

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
        """Make a tensor of a numpy array.

        The array is kept, not copied, if it is C-contiguous, and read when the tensor is sent; strings (dtype object
        or S) are read now. Raises TritonModelException for an empty name and for dtypes that Triton has not, such as
        unicode ("U"), complex and datetime.
        """

    def name(self) -> str:
        """The tensor's name."""

    def shape(self) -> list[int]:
        """The dimensions, with the batch dimension if the model has one. A new list with each call."""

    def as_numpy(self) -> NDArray[Any]:
        """The tensor as an array, the same object with each call.

        Inputs are private to the model and may be written to. Strings are an object array of `bytes`. Raises
        TritonModelException for tensors on a GPU and for BF16, which numpy lacks.
        """

    def triton_dtype(self) -> int:
        """Triton's number of the data type: 1 BOOL, 2 to 5 UINT8 to UINT64, 6 to 9 INT8 to INT64, 10 to 12 FP16 to
        FP64, 13 BYTES, 14 BF16."""

    def is_cpu(self) -> bool:
        """Whether the tensor lies in CPU memory. Only tensors that `from_dlpack` made of others on a GPU do not."""

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the tensor's own memory, for libraries that take no tensor objects."""

    @staticmethod
    def from_dlpack(name: _Text, tensor: object, /) -> Tensor:
        """Make a tensor of another library's, without a copy: an object with `__dlpack__`, or a capsule.

        It has to be C-contiguous, and may lie on a CUDA device. Its memory is read when the tensor is sent. Of one in
        CPU memory `as_numpy` gives a snapshot of now.
        """

    def __dlpack__(self, stream: object = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class InferenceTrace:
    """The trace that a request belongs to. `request.trace()` gives it, and BLS requests take it."""

    def __init__(self, _: Never, /) -> None: ...
    def get_context(self) -> str | None:
        """The OpenTelemetry context to propagate, as JSON text, or None."""

class MemoryType(_Enumeration):
    TRITONSERVER_MEMORY_GPU: ClassVar[MemoryType]
    TRITONSERVER_MEMORY_CPU: ClassVar[MemoryType]

TRITONSERVER_MEMORY_GPU: Final[MemoryType]
TRITONSERVER_MEMORY_CPU: Final[MemoryType]

class PreferredMemory:
    """Where a BLS request wants its outputs."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: SupportsIndex = 0) -> None: ...

class InferenceRequest:
    """A request: one that `execute` was given, or one that the model makes for another model (BLS)."""

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
        """Make a request for another model, to be sent with `exec` or `async_exec`.

        An empty list of outputs means all. Version -1 leaves the choice to the server. `timeout` is in microseconds.
        `flags` are the TRITONSERVER_REQUEST_FLAG_SEQUENCE_ ones. `parameters` is a dict.
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
        """The inputs, in no particular order. A new list with each call."""

    def request_id(self) -> str:
        """The id that the client gave, or ""."""

    def correlation_id(self) -> int | str:
        """The id of the sequence, of the type that the client chose; 0 if there is none."""

    def flags(self) -> int:
        """TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END, or-ed."""

    def set_flags(self, flags: SupportsIndex, /) -> None:
        """Replace the flags."""

    def timeout(self) -> int:
        """The time-out in microseconds, 0 if there is none."""

    def parameters(self) -> str:
        """The custom parameters as the text of a JSON object."""

    def requested_output_names(self) -> set[str]:
        """The outputs that the client wants; all of the model's if it named none."""

    def trace(self) -> InferenceTrace:
        """The trace of this request, for BLS requests made on its behalf."""

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more. Always False for requests that the model made."""

    def get_response_sender(self) -> InferenceResponseSender:
        """The sender of this request's responses, the same object with each call."""

    def set_release_flags(self, flags: SupportsIndex, /) -> None:
        """With TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, `execute` gets this request again after it has returned.

        For models with `sequence_batching { iterative_sequence: true }`; answer with None this time.
        """

    @overload
    def exec(self, decoupled: Literal[False] = False) -> InferenceResponse:
        """Send the request to its model and wait for the answer.

        What goes wrong there is the error of the response. Raises TritonModelException outside of `execute`.
        """

    @overload
    def exec(self, decoupled: Literal[True]) -> ResponseIterator:
        """Send the request and return its responses as they come; it waits for the first one."""

    @overload
    def exec(self, decoupled: bool) -> InferenceResponse | ResponseIterator: ...
    @overload
    def async_exec(self, decoupled: Literal[False] = False) -> asyncio.Future[InferenceResponse]:
        """Send the request at once, to be awaited. It needs a running event loop."""

    @overload
    def async_exec(self, decoupled: Literal[True]) -> asyncio.Future[ResponseIterator]:
        """Send the request at once, to be awaited for its responses. Iterating over them blocks."""

    @overload
    def async_exec(self, decoupled: bool) -> asyncio.Future[InferenceResponse] | asyncio.Future[ResponseIterator]: ...

class InferenceResponse:
    """The answer to one request: output tensors, or an error."""

    def __init__(
        self,
        output_tensors: _List[Tensor] = [],
        error: TritonError | None = None,
        parameters: _Parameters | None = None,
    ) -> None:
        """Make a response. With an error, the client gets nothing else. `parameters` is a dict."""

    def output_tensors(self) -> list[Tensor]:
        """The outputs. A new list with each call. Sending the response takes away those that nobody asked for."""

    def has_error(self) -> bool:
        """Whether the response is an error."""

    def error(self) -> Any | TritonError:
        """The error, or None."""

    def parameters(self) -> str:
        """The parameters as the text of a JSON object; "" if a BLS response is an error or an empty last one."""

class InferenceResponseSender:
    """Sends the responses to one request, from any thread, also after `execute` has returned."""

    def __init__(self, _: Never, /) -> None: ...
    def send(self, response: InferenceResponse | None = None, flags: SupportsIndex = 0) -> None:
        """Send a response, or with TRITONSERVER_RESPONSE_COMPLETE_FINAL the last one, or that flag alone.

        Raises TritonModelException after the last one. Models that are not decoupled send exactly one response.
        """

    def is_cancelled(self) -> bool:
        """Whether nobody waits for responses any more."""

    async def cancelled(self) -> bool:
        """Wait until nobody waits any more: True; or until the request has been answered: False. Triton has it not."""

class ResponseIterator:
    """The responses to a BLS request, as they come. The last one may have no outputs.

    A loop that was left goes on where it stopped; a loop after the end begins anew. `async for`, which Triton has not,
    does not block the event loop.
    """

    def __init__(self, response: InferenceResponse, /) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> InferenceResponse: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> InferenceResponse: ...
    def cancel(self) -> None:
        """Ask for the end of the inference. What comes until then, an error at last, still has to be read."""

class TritonError:
    """An error to answer with. It is no exception: TritonModelException is."""

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
        """Make an error with the text that the client reads. The code is INTERNAL unless given."""

    def code(self) -> _Code:
        """One of the codes of this class, such as TritonError.NOT_FOUND."""

    def message(self) -> str:
        """The text."""

class TritonModelException(Exception):
    """What the functions here raise, and models as they like."""

class Logger:
    """Writes to the server's log, with the file and line of the caller. Static methods only."""

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
        """Log with a level of this class, INFO unless given."""

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
    """One series of a MetricFamily. `family.Metric(…)` makes it."""

    def __init__(self, _: Never, /) -> None: ...
    def increment(self, value: SupportsFloat, /) -> None:
        """Add to a counter (nothing negative) or a gauge."""

    def set(self, value: SupportsFloat, /) -> None:
        """Set a gauge."""

    def observe(self, value: SupportsFloat, /) -> None:
        """Count a value into a histogram."""

    def value(self) -> float:
        """The value of a counter or gauge."""

_Metric: TypeAlias = Metric

class MetricFamily:
    """Metrics of one name on the server's /metrics. Keep it for as long as its metrics are used.

    Several instances that make the same family and labels share the values.
    """

    COUNTER: ClassVar[MetricKind]
    GAUGE: ClassVar[MetricKind]
    HISTOGRAM: ClassVar[MetricKind]

    def __init__(self, name: _Text, description: _Text, kind: MetricKind) -> None: ...
    def Metric(
        self, labels: dict[str, str] | None = None, buckets: list[float] | list[int] | None = None
    ) -> _Metric:
        """The metric with these labels. Histograms need the upper bounds of their buckets, ascending."""

@final
class SharedMemory:
    """The memory that the process has for tensors of its own."""

    def __init__(self, _: Never, /) -> None: ...
    def free_memory(self) -> int:
        """Bytes that can still be taken."""

shared_memory: Final[SharedMemory]

def load_model(model_name: _Text, config: _Text = "", files: dict[str, bytes] | None = None) -> None:
    """Load a model, or load it again, and wait until it is ready. The server has to be in explicit control mode.

    `config` is JSON instead of the config.pbtxt. `files` holds contents by `file:<path in the model's directory>`.
    Raises TritonModelException.
    """

def unload_model(model_name: _Text, unload_dependents: bool = False) -> None:
    """Begin to unload a model. Raises TritonModelException."""

def is_model_ready(model_name: _Text, model_version: _Text = "") -> bool:
    """Whether a model, or one version of it, is ready. Raises TritonModelException if there is none."""

def async_event_future_done_callback(py_future: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    """Log how a future failed, if it did; for `add_done_callback`."""
