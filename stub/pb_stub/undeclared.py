"""Outputs that are not in the model's configuration.

As in Triton, clients do not receive them, but in Triton the model's author is never told. Here,
each name is logged once, or the response is an error if the server requires configured outputs.
"""

from __future__ import annotations

from typing import Container, Iterable

from c_python_backend_utils import runtime
from c_python_backend_utils.tensor import Tensor

from .logs import Logs

#: Maximum number of logged names, for models that make up names.
_MOST = 32


class Undeclared:
    """Checks for undeclared outputs, in any thread that sends responses."""

    def __init__(self, model: str, declared: Iterable[str], strict: bool, logs: Logs) -> None:
        self._model = model
        self._declared = dict.fromkeys(declared)
        self._strict = strict
        self._logs = logs
        self._said: set[str] = set()

    def refusal(self, outputs: Iterable[Tensor], wanted: Container[str]) -> str:
        """Report undeclared outputs.

        Returns why the response is rejected because of them, or "".
        """
        for tensor in outputs:
            name = tensor.name()
            if name in wanted or name in self._declared:
                continue
            has = ", ".join(f"'{one}'" for one in self._declared) or "none"
            text = f"output '{name}' is not in the configuration of model '{self._model}', whose outputs are {has}"
            # Two threads may both report it: the supervisor logs it once for all instances.
            if name not in self._said and len(self._said) < _MOST:
                self._said.add(name)
                level, end = (runtime.ERROR, "") if self._strict else (runtime.WARNING, ": clients do not get it")
                self._logs.complain(level, text + end, once=f"output {name}")
            if self._strict:
                return text
        return ""
