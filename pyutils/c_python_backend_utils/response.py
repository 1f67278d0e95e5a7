"""InferenceResponse: tensors, or an error."""

from __future__ import annotations

from typing import Any

from . import parameters as parameter_text
from .binding import MODULE, Bound, Mismatch, as_objects, incompatible
from .error import TritonError, TritonModelException
from .tensor import Tensor

_SIGNATURE = (
    (
        f"{MODULE}.InferenceResponse(output_tensors: List[{MODULE}.Tensor] = [], "
        f"error: {MODULE}.TritonError = None, parameters: object = None)"
    ),
)


class InferenceResponse(Bound):
    """The answer to one request. One with an error keeps its tensors, but they are not sent."""

    __module__ = MODULE
    __slots__ = ("_error", "_outputs", "_parameters")

    _error: TritonError | None
    _outputs: list[Tensor]
    _parameters: str  # JSON

    def __init__(
        self, output_tensors: Any = (), error: Any = None, parameters: Any = None, *rest: Any, **unknown: Any
    ) -> None:
        # Called once for each request: the usual list of tensors is checked without a function call.
        if output_tensors.__class__ is list and not rest and not unknown and (error is None):
            for tensor in output_tensors:
                if tensor.__class__ is not Tensor:
                    break
            else:
                self._outputs = output_tensors[:]
                self._error = None
                self._parameters = parameter_text.NONE if parameters is None else parameter_text.encode(parameters)
                return
        try:
            outputs = as_objects(output_tensors, Tensor)
            if rest or unknown or not (error is None or isinstance(error, TritonError)):
                raise Mismatch
        except Mismatch:
            args = [output_tensors, error, parameters, *rest]
            while args[1:] and args[-1] is None:  # not given
                args.pop()
            raise incompatible("__init__", _SIGNATURE, args, unknown) from None
        self._parameters = parameter_text.encode(parameters)
        if any(tensor is None for tensor in outputs):
            raise TritonModelException("Output tensor for inference response should not be empty.")
        self._outputs = outputs
        self._error = error

    def output_tensors(self) -> list[Tensor]:
        return self._outputs[:]

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        """The parameters as JSON text."""
        return self._parameters
