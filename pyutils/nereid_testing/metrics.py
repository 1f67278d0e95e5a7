"""The metrics that models create, as values for tests."""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Mapping

from c_python_backend_utils import runtime
from c_python_backend_utils.runtime import Refused

Labels = "frozenset[tuple[str, str]]"


@dataclass
class Histogram:
    """The counts of a histogram: `buckets` maps upper bounds to the number of values up to them."""

    count: int = 0
    sum: float = 0.0
    buckets: dict[float, int] = field(default_factory=dict)


@dataclass
class _Series:
    family: str
    labels: frozenset[tuple[str, str]]
    bounds: list[float]
    value: float = 0.0
    counts: list[int] = field(default_factory=list)


@dataclass
class _Family:
    kind: int
    references: int = 0
    series: dict[frozenset[tuple[str, str]], int] = field(default_factory=dict)


class Metrics:
    """All families, shared by all models, as on a server's /metrics."""

    def __init__(self) -> None:
        self._mu = threading.Lock()
        self._numbers = count(1)
        self._families: dict[str, _Family] = {}
        self._names: dict[int, str] = {}  # names of families, by the number given to the model
        self._series: dict[int, _Series] = {}

    def new_family(self, name: str, kind: int) -> int:
        with self._mu:
            family = self._families.setdefault(name, _Family(kind))
            if family.kind != kind:
                raise Refused("Family name already exists with different type")
            family.references += 1
            number = next(self._numbers)
            self._names[number] = name
            return number

    def drop_family(self, number: int) -> None:
        """End a family of a model; the last family of a name takes its metrics with it."""
        with self._mu:
            name = self._names.pop(number)
            family = self._families[name]
            family.references -= 1
            if not family.references:
                for series in family.series.values():
                    del self._series[series]
                family.series.clear()

    def new_metric(self, number: int, labels: list[tuple[str, str]], bounds: list[float]) -> int:
        with self._mu:
            name = self._names[number]
            key = frozenset(labels)
            series = self._families[name].series
            if key not in series:
                series[key] = next(self._numbers)
                self._series[series[key]] = _Series(name, key, bounds, counts=[0] * (len(bounds) + 1))
            return series[key]

    def change(self, metric: int, operation: int, value: float) -> None:
        with self._mu:
            series = self._series[metric]
            if operation == runtime.SET:
                series.value = value
                return
            series.value += value
            if operation == runtime.OBSERVE:
                series.counts[bisect.bisect_left(series.bounds, value)] += 1

    def value(self, metric: int) -> float:
        with self._mu:
            return self._series[metric].value

    def read(self, name: str, labels: Mapping[str, str]) -> float | Histogram:
        with self._mu:
            if name not in self._families:
                raise KeyError(f"there is no metric family {name!r}, only {sorted(self._families)}")
            family = self._families[name]
            number = family.series.get(frozenset(labels.items()))
            if number is None:
                known = [dict(sorted(known)) for known in family.series]
                raise KeyError(f"metric family {name!r} has no metric with labels {dict(labels)}, only {known}")
            series = self._series[number]
            if family.kind != runtime.HISTOGRAM:
                return series.value
            total = 0
            buckets = {}
            for bound, n in zip([*series.bounds, float("inf")], series.counts):
                total += n
                buckets[bound] = total
            return Histogram(total, series.value, buckets)
