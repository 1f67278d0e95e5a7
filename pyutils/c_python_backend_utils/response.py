"""InferenceResponse: tensors, or an error."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from . import parameters as parameter_text
from .binding import MODULE, NOTHING, Bound, Mismatch, as_objects, checked, incompatible
from .error import TritonError, TritonModelException
from .tensor import Tensor

_SIGNATURE = (
    (
        f"{MODULE}.InferenceResponse(output_tensors: List[{MODULE}.Tensor] = [], "
        f"error: {MODULE}.TritonError = None, parameters: object = None)"
    ),
)

_NO_PARAMETERS = parameter_text.NONE


@checked(has_error="bool", error=f"{MODULE}.TritonError", parameters="str")
class InferenceResponse(Bound):
    """The response to one request. With an error, its tensors are kept but not sent."""

    __module__ = MODULE
    __slots__ = ("_error", "_outputs", "_parameters")

    _error: Optional[TritonError]
    _outputs: List[Tensor]
    _parameters: str  # JSON

    # Called once for each request: the usual list of tensors is checked without a function call.
    # Error texts distinguish positional from named arguments; tensors are often given either way.
    def __init__(self, first: Any = NOTHING, /, *rest: Any, output_tensors: Any = NOTHING, **named: Any) -> None:
        outputs = first
        if first is NOTHING:
            outputs = output_tensors
        elif output_tensors is not NOTHING:
            outputs = None
        if outputs.__class__ is list and not rest and not named:
            for tensor in outputs:
                if tensor.__class__ is not Tensor:
                    break
            else:
                self._outputs = outputs[:]
                self._error = None
                self._parameters = _NO_PARAMETERS
                return
        args = rest if first is NOTHING else (first, *rest)
        if output_tensors is not NOTHING:
            named = {"output_tensors": output_tensors, **named}
        try:
            given, error, parameters = _arguments(*args, **named)
            outputs = as_objects(given, Tensor)
            if not (error is None or isinstance(error, TritonError)):
                raise Mismatch
        except (Mismatch, TypeError):
            raise incompatible("__init__", _SIGNATURE, args, named) from None
        self._parameters = parameter_text.encode(parameters)
        if any(tensor is None for tensor in outputs):
            raise TritonModelException("Output tensor for inference response should not be empty.")
        self._outputs = outputs
        self._error = error

    def output_tensors(self) -> List[Tensor]:
        return self._outputs[:]

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> Optional[TritonError]:
        return self._error

    def parameters(self) -> str:
        """Return the parameters as JSON text."""
        return self._parameters


def _arguments(output_tensors: object = (), error: Any = None, parameters: object = None) -> Tuple[object, Any, object]:
    return output_tensors, error, parameters
