"""InferenceRequest: requests to a model, and its own requests to other models."""

from __future__ import annotations

from typing import Any, Awaitable, Dict, Iterable, List, Optional, Set, Tuple, Union

from . import parameters as parameter_text
from . import runtime
from .binding import (
    MODULE,
    NOTHING,
    Bound,
    Mismatch,
    Text,
    Unmakeable,
    as_bool,
    as_integer,
    as_list,
    as_objects,
    as_text,
    checked,
    from_text,
    incompatible,
    uncastable,
)
from .error import TritonModelException
from .iterator import ResponseIterator
from .memory import PreferredMemory
from .response import InferenceResponse
from .sender import InferenceResponseSender, making, sender_of
from .tensor import Tensor

_U32 = 2**32 - 1
_U64 = 2**64 - 1
_I64 = 2**63 - 1

_SET_RELEASE_FLAGS = (f"(self: {MODULE}.InferenceRequest, arg0: int) -> None",)
_SET_FLAGS = (f"(self: {MODULE}.InferenceRequest, arg0: int) -> None",)


@checked(get_context="object")
class InferenceTrace(Unmakeable):
    """The trace of a request."""

    __module__ = MODULE
    __slots__ = ("_context",)

    _context: Optional[str]  # the server's number of the trace, followed by the context, if any

    def get_context(self) -> Optional[str]:
        """Return the context to propagate, as JSON text, or None."""
        context = self._context
        at = -1 if context is None else context.find("{")
        return None if context is None or at < 0 else context[at:]


def trace_of(context: Optional[str]) -> InferenceTrace:
    """Make the trace that the server identifies by this text."""
    trace = InferenceTrace.__new__(InferenceTrace)
    trace._context = context
    return trace


_NO_TRACE = trace_of(None)
_NO_MEMORY = PreferredMemory.__new__(PreferredMemory)  # no preference

_SIGNATURE = (
    (
        f"{MODULE}.InferenceRequest(request_id: str = '', correlation_id: object = 0, "
        "inputs: List[triton::backend::python::PbTensor], requested_output_names: List[str], model_name: str, "
        "model_version: int = -1, flags: int = 0, timeout: int = 0, "
        f"preferred_memory: {MODULE}.PreferredMemory = <{MODULE}.PreferredMemory object at {id(_NO_MEMORY):#x}>, "
        f"trace: {MODULE}.InferenceTrace = {_NO_TRACE!r}, parameters: object = None)"
    ),
)


@checked(
    request_id="str",
    correlation_id="object",
    flags="int",
    timeout="int",
    parameters="str",
    trace=f"{MODULE}.InferenceTrace",
    requested_output_names="Set[str]",
    is_cancelled="bool",
    get_response_sender="triton::backend::python::ResponseSender",
)
class InferenceRequest(Bound):
    """A request. The stub makes those for `execute` by setting the slots."""

    __module__ = MODULE
    __slots__ = (
        "_correlation",
        "_flags",
        "_handle",
        "_id",
        "_inputs",
        "_model_name",
        "_model_version",
        "_parameters",
        "_preferred_memory",
        "_sender",
        "_timeout",
        "_trace",
        "_wanted",
    )

    _correlation: Union[int, str]
    _flags: int
    _handle: int  # the server's number, 0 if the model made the request
    _id: Text
    _inputs: List[Tensor]
    _model_name: Text
    _model_version: int
    _parameters: str  # JSON
    _preferred_memory: Optional[PreferredMemory]  # only if the model made the request
    _sender: Optional[InferenceResponseSender]  # None until the model requests it or the request is complete
    _timeout: int  # µs; 0: no timeout
    _trace: Union[InferenceTrace, str, None]  # a str is the server's text, not converted yet
    _wanted: Iterable[Text]  # names of outputs; in the stub, the keys of a mapping

    # Called for each BLS request: the usual arguments are checked without a function call.
    def __init__(self, *args: Any, **named: Any) -> None:
        if len(named) == 3 and not args:
            inputs, outputs = named.get("inputs"), named.get("requested_output_names")
            name: Any = named.get("model_name")
            if name.__class__ is str and name.isascii() and inputs.__class__ is list and outputs.__class__ is list:
                usual = True
                for tensor in inputs:
                    if tensor.__class__ is not Tensor:
                        usual = False
                for output in outputs:
                    if output.__class__ is not str or not output or not output.isascii():
                        usual = False
                if usual:
                    self._sender = None
                    self._handle = self._correlation = self._flags = self._timeout = 0
                    self._id = ""
                    self._model_name = name
                    self._model_version = -1
                    self._preferred_memory = None
                    self._trace = _NO_TRACE
                    self._parameters = parameter_text.NONE
                    self._inputs = inputs[:]
                    self._wanted = dict.fromkeys(outputs)
                    return
        try:
            self._fill(*args, **named)
        except (Mismatch, TypeError):
            raise incompatible("__init__", _SIGNATURE, args, named) from None

    def _fill(
        self,
        request_id: object = "",
        correlation_id: object = 0,
        inputs: object = None,
        requested_output_names: object = None,
        model_name: object = None,
        model_version: object = -1,
        flags: object = 0,
        timeout: object = 0,
        preferred_memory: object = _NO_MEMORY,
        trace: object = _NO_TRACE,
        parameters: object = None,
    ) -> None:
        if correlation_id is None or not isinstance(preferred_memory, PreferredMemory):
            raise Mismatch
        if not isinstance(trace, InferenceTrace):
            raise Mismatch
        self._sender = None
        self._handle = 0
        self._id = as_text(request_id)
        tensors = as_objects(inputs, Tensor)
        outputs = [as_text(name) for name in as_list(requested_output_names)]
        self._model_name = as_text(model_name)
        self._model_version = as_integer(model_version, -_I64 - 1, _I64)
        self._flags = as_integer(flags, 0, _U32)
        self._timeout = as_integer(timeout, 0, _U64)
        self._preferred_memory = None if preferred_memory is _NO_MEMORY else preferred_memory
        self._trace = trace
        self._parameters = parameter_text.encode(parameters)
        self._correlation = _correlation(correlation_id)
        if None in tensors:
            raise TritonModelException(f"Input tensor {self._shown()} should not be empty.")
        if not all(outputs):
            raise TritonModelException(f"Requested output name {self._shown()} should not be empty.")
        self._inputs = tensors
        self._wanted = dict.fromkeys(outputs)

    def _shown(self) -> str:
        return f"for request with id '{_shown(self._id)}' and model name '{_shown(self._model_name)}'"

    def inputs(self) -> List[Tensor]:
        return self._inputs[:]

    def request_id(self) -> str:
        return from_text(self._id)

    def correlation_id(self) -> Union[int, str]:
        return self._correlation

    def flags(self) -> int:
        return self._flags

    def set_flags(self, *args: Any, **named: Any) -> None:
        try:
            if named or len(args) != 1:
                raise Mismatch
            self._flags = as_integer(args[0], 0, _U32)
        except Mismatch:
            raise incompatible("set_flags", _SET_FLAGS, (self, *args), named) from None

    def timeout(self) -> int:
        """Return the timeout in microseconds, or 0 if there is no timeout."""
        return self._timeout

    def is_cancelled(self) -> bool:
        """Return whether the client has gone away. After completion, the last known state."""
        return (self._sender or self._make_sender()).is_cancelled()

    def get_response_sender(self) -> InferenceResponseSender:
        """Return the sender of this request's responses. Each call returns the same object."""
        return self._sender or self._make_sender()

    def _make_sender(self) -> InferenceResponseSender:
        with making:
            if self._sender is None:
                sender = sender_of(runtime.current().outlet(self))
                # A destructor or signal handler may have created it meanwhile.
                if self._sender is None:
                    self._sender = sender
                else:
                    sender._closed = True
            return self._sender

    def set_release_flags(self, *args: Any, **named: Any) -> None:
        """Choose whether the request is released or executed again when `execute` returns."""
        try:
            flags = args[0] if len(args) == 1 and not named else NOTHING
            if not args and list(named) == ["flags"]:
                flags = named["flags"]
            number = as_integer(flags, 0, _U32)
        except Mismatch:
            raise incompatible("set_release_flags", _SET_RELEASE_FLAGS, (self, *args), named) from None
        sender = self.get_response_sender()
        if not sender._closed:  # answered requests may share one
            sender._release = number

    def parameters(self) -> str:
        """Return the custom parameters as JSON text."""
        return self._parameters

    def requested_output_names(self) -> Set[str]:
        return set(map(from_text, self._wanted))

    def trace(self) -> InferenceTrace:
        trace = self._trace
        if not isinstance(trace, InferenceTrace):
            trace = self._trace = trace_of(trace)
        return trace

    def exec(self, *args: Any, **named: Any) -> Union[InferenceResponse, ResponseIterator]:
        """Have the named model execute the request: `exec(decoupled=False)`.

        Returns its response, or if decoupled, an iterator over its responses after the first has
        arrived. If the request fails, the response has the error.
        """
        decoupled = self._decoupled("exec", args, named) if args or named else False
        result: Union[InferenceResponse, ResponseIterator] = runtime.current().infer(self, decoupled)
        return result

    def async_exec(self, *args: Any, **named: Any) -> Awaitable[Union[InferenceResponse, ResponseIterator]]:
        """Like `exec`, for coroutines: sends the request and returns a future of the result.

        It is an asyncio.Future; cancelling it cancels the request.
        """
        decoupled = self._decoupled("async_exec", args, named) if args or named else False
        future: Awaitable[Union[InferenceResponse, ResponseIterator]] = runtime.current().infer_soon(self, decoupled)
        return future

    def _decoupled(self, function: str, args: Tuple[Any, ...], named: Dict[str, Any]) -> bool:
        try:
            flag = _flag(*args, **named)
            if flag is None:
                raise Mismatch
            return as_bool(flag)
        except (Mismatch, TypeError):
            signature = f"(self: {MODULE}.InferenceRequest, decoupled: bool = False) -> object"
            raise incompatible(function, (signature,), (self, *args), named) from None


def _flag(decoupled: object = False) -> object:
    return decoupled


def _correlation(value: object) -> Union[int, str]:
    """Convert a correlation id; bad types and values raise TritonModelException, not TypeError."""
    if isinstance(value, int):
        if not 0 <= value <= _U64:
            raise uncastable(value)
        return int(value)
    if not isinstance(value, str):
        raise TritonModelException("Correlation ID must be integer or string")
    try:
        text = as_text(value)
    except Mismatch:
        raise uncastable(value) from None
    return from_text(text)


def _shown(text: Text) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
