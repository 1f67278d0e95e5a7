"""MetricFamily and Metric: metrics of a model, exposed with the server's own metrics."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, ClassVar, Dict, List, Tuple

from . import runtime
from .binding import (
    MODULE,
    Bound,
    BoundEnum,
    Mismatch,
    Unmakeable,
    as_float,
    as_text,
    incompatible,
    uncastable,
)
from .error import TritonModelException
from .runtime import Refused, Runtime


class MetricKind(BoundEnum):
    """The kinds of metrics. Their numbers are sent."""

    __module__ = MODULE
    __slots__ = ()
    names = ("COUNTER", "GAUGE", "HISTOGRAM")


_kinds: Any = MetricKind  # its members are attributes
COUNTER: MetricKind = _kinds.COUNTER
GAUGE: MetricKind = _kinds.GAUGE
HISTOGRAM: MetricKind = _kinds.HISTOGRAM

_FAMILY = (f"{MODULE}.MetricFamily(name: str, description: str, kind: {MODULE}.MetricKind)",)
_METRIC = (f"(self: {MODULE}.MetricFamily, labels: object = None, buckets: object = None) -> {MODULE}.Metric",)
_CHANGE = (f"(self: {MODULE}.Metric, arg0: float) -> None",)
_VALUE = (f"(self: {MODULE}.Metric) -> float",)

_GONE = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)
_ONLY_UP = "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
#: By operation, the start of its error texts, and the kinds that do not support it.
_OPERATIONS: Dict[int, Tuple[str, Tuple[int, ...]]] = {
    runtime.INCREMENT: ("Failed to increment metric value: ", (runtime.HISTOGRAM,)),
    runtime.SET: ("Failed to set metric value: ", (runtime.COUNTER, runtime.HISTOGRAM)),
    runtime.OBSERVE: ("Failed to observe metric value: ", (runtime.COUNTER, runtime.GAUGE)),
}
_NOUNS = {runtime.INCREMENT: "Increment", runtime.SET: "Set", runtime.OBSERVE: "Observe"}
_GET = "Failed to get metric value: "


def refusal(prefix: str, reason: object) -> TritonModelException:
    """Make the exception for a call that the server rejects, in Triton's form."""
    instance = runtime.current().instance()
    return TritonModelException(f"{prefix}Failed to process the request for model '{instance}', message: {reason}")


class _Family:
    """State shared by a family and its metrics.

    It outlives the family, so that metrics notice its end.
    """

    __slots__ = ("alive", "kind", "number", "runtime")

    def __init__(self, around: Runtime, number: int, kind: int) -> None:
        self.runtime = around
        self.number = number
        self.kind = kind
        self.alive = True


class Metric(Unmakeable):
    """One series of a family, made by `MetricFamily.Metric`."""

    __module__ = MODULE
    __slots__ = ("_family", "_number")

    _family: _Family
    _number: int

    def increment(self, *args: Any, **named: Any) -> None:
        """Add to a counter or a gauge."""
        self._change("increment", runtime.INCREMENT, args, named)

    def set(self, *args: Any, **named: Any) -> None:
        """Set a gauge."""
        self._change("set", runtime.SET, args, named)

    def observe(self, *args: Any, **named: Any) -> None:
        """Add an observation to a histogram."""
        self._change("observe", runtime.OBSERVE, args, named)

    def _change(self, function: str, operation: int, args: Tuple[Any, ...], named: Dict[str, Any]) -> None:
        try:
            if len(args) != 1 or named:
                raise Mismatch
            value = as_float(args[0])
        except Mismatch:
            raise incompatible(function, _CHANGE, (self, *args), named) from None
        family = self._family
        prefix, without = _OPERATIONS[operation]
        if not family.alive:
            raise TritonModelException(prefix + _GONE)
        if family.kind in without:
            kind = MetricKind.names[family.kind]
            raise refusal(prefix, f"TRITONSERVER_METRIC_KIND_{kind} does not support {_NOUNS[operation]}")
        if value < 0 and family.kind == runtime.COUNTER:
            raise refusal(prefix, _ONLY_UP)
        try:
            family.runtime.change_metric(self._number, operation, value)
        except Refused as error:
            raise refusal(prefix, error) from None

    def value(self, *args: Any, **named: Any) -> float:
        """Return the value of a counter or gauge, including changes by other processes."""
        if args or named:
            raise incompatible("value", _VALUE, (self, *args), named)
        family = self._family
        if not family.alive:
            raise TritonModelException(_GET + _GONE)
        if family.kind == runtime.HISTOGRAM:
            raise refusal(_GET, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value")
        try:
            return family.runtime.metric_value(self._number)
        except Refused as error:
            raise refusal(_GET, error) from None


class MetricFamily(Bound):
    """A family of metrics. Its metrics end with it, even if the model still references them."""

    __module__ = MODULE
    __slots__ = ("_known", "_state")

    COUNTER: ClassVar[Any] = COUNTER
    GAUGE: ClassVar[Any] = GAUGE
    HISTOGRAM: ClassVar[Any] = HISTOGRAM

    _state: _Family
    _known: Dict[str, int]  # numbers of metrics by their labels

    def __init__(self, *args: Any, **named: Any) -> None:
        try:
            name, description, kind = _family_arguments(*args, **named)
            name, description = as_text(name), as_text(description)
            if not isinstance(kind, MetricKind):
                raise Mismatch
        except (Mismatch, TypeError):
            raise incompatible("__init__", _FAMILY, args, named) from None
        around = runtime.current()
        try:
            if kind.value >= len(MetricKind.names):
                raise Refused("Unknown metric kind")
            number = around.new_family(name, description, kind.value)
        except Refused as error:
            raise refusal("Error when creating MetricFamily: ", error) from None
        self._known = {}
        self._state = _Family(around, number, kind.value)

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is None or not state.alive:
            return
        state.alive = False
        try:
            state.runtime.drop_family(state.number)
        except Exception as error:
            with contextlib.suppress(OSError):
                os.write(2, f"Error when deleting MetricFamily: {error}\n".encode("utf-8", "backslashreplace"))

    def Metric(self, *args: Any, **named: Any) -> Metric:
        """Make a metric.

        `labels` is a dict of str, `buckets` a list of float with the upper bounds of a histogram.
        """
        try:
            labels, buckets = _metric_arguments(*args, **named)
        except TypeError:
            raise incompatible("Metric", _METRIC, (self, *args), named) from None
        state = self._state
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        bounds = _bounds(state.kind, buckets)
        text = "" if labels is None else json.dumps(labels, sort_keys=False)
        try:
            pairs = _pairs(text)
            if any(not low < high for low, high in zip(bounds, bounds[1:])):
                raise Refused("Bucket Boundaries must be strictly sorted")
            key = json.dumps(sorted(pairs.items()))
            number = self._known.get(key)
            if number is None:
                number = state.runtime.new_metric(state.number, list(pairs.items()), bounds)
                self._known[key] = number
        except Refused as error:
            raise refusal("Error when creating Metric: ", error) from None
        metric: Metric = Unmakeable.__new__(_Metric)
        metric._family = state
        metric._number = number
        return metric


_Metric = Metric  # inside the class, Metric is the method


def _family_arguments(name: object, description: object, kind: object) -> Tuple[Any, Any, Any]:
    return name, description, kind


def _metric_arguments(labels: object = None, buckets: object = None) -> Tuple[Any, Any]:
    return labels, buckets


def _bounds(kind: int, buckets: object) -> List[float]:
    """Check the buckets of a metric of this kind."""
    if buckets is not None and not isinstance(buckets, list):
        raise TritonModelException("Failed to create metric. Buckets must be a list.")
    if kind != runtime.HISTOGRAM:
        if buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        return []
    if buckets is None:
        raise TritonModelException("Failed to create metric. Missing required buckets.")
    bounds = []
    for bucket in buckets:
        try:
            bounds.append(as_float(bucket))
        except Mismatch:
            raise uncastable(bucket) from None
    return bounds


def _pairs(text: str) -> Dict[str, str]:
    """Parse labels from JSON, as Triton does: keys have become strings, values must be strings."""
    pairs: Dict[str, str] = json.loads(text) if text else {}
    for key, value in pairs.items():
        if not isinstance(value, str):
            raise Refused("attempt to access JSON non-string as string")
        try:
            (key + value).encode()
        except UnicodeEncodeError:
            raise Refused("failed to parse the request JSON buffer: The surrogate pair in string is invalid.") from None
    return pairs
