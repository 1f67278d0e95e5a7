"""Outputs that the model's configuration does not have.

Clients do not get them, as in Triton, where their author never hears of that. Here the log says so once for each name,
or the response is an error if the server wants outputs to be as configured.
"""

from __future__ import annotations

from typing import Container, Iterable

from c_python_backend_utils import runtime
from c_python_backend_utils.tensor import Tensor

from .logs import Logs

#: Names that are told; a model that makes up names is told of the first ones.
_MOST = 32


class Undeclared:
    """Looks at outputs that a request does not want, in any thread that sends responses."""

    def __init__(self, model: str, declared: Iterable[str], strict: bool, logs: Logs) -> None:
        self._model = model
        self._declared = dict.fromkeys(declared)
        self._strict = strict
        self._logs = logs
        self._said: set[str] = set()

    def refusal(self, outputs: Iterable[Tensor], wanted: Container[str]) -> str:
        """Tell of outputs that are not declared; why the response is refused for them, or ""."""
        for tensor in outputs:
            name = tensor.name()
            if name in wanted or name in self._declared:
                continue
            has = ", ".join(f"'{one}'" for one in self._declared) or "none"
            text = f"output '{name}' is not in the configuration of model '{self._model}', whose outputs are {has}"
            # Two threads may both say it: the supervisor says it once for all instances.
            if name not in self._said and len(self._said) < _MOST:
                self._said.add(name)
                level, end = (runtime.ERROR, "") if self._strict else (runtime.WARNING, ": clients do not get it")
                self._logs.complain(level, text + end, once=f"output {name}")
            if self._strict:
                return text
        return ""
