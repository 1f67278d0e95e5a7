"""Inputs and outputs of a config, and deviations of a test or a model from it.

Unless it is strict, a server only logs a line for invalid outputs; a test should find them.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from triton_python_backend_utils import InferenceResponse, Tensor

#: The names of data types by Triton's number.
_TYPES = (
    "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16",
    "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
)  # fmt: skip


class Declared:
    """The inputs and outputs of a config.

    Inputs are only checked if the config has any, as are outputs.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._model = config["name"]
        self._inputs = [entry["name"] for entry in config["input"]]
        self._outputs = {entry["name"]: entry for entry in config["output"]}
        self._batches = int(config["max_batch_size"] or 0) > 0

    def strange_input(self, names: Iterable[str]) -> str:
        """Return the fault in the names of inputs, Triton's text and the valid names, or ""."""
        return _strange("input", names, self._inputs, self._model)

    def strange_output(self, names: Iterable[str]) -> str:
        """Like strange_input, for the requested outputs."""
        return _strange("output", names, list(self._outputs), self._model)

    def odd(self, response: InferenceResponse) -> str:
        """Return the fault in the outputs of a response, or ""."""
        if not self._outputs or response.has_error():
            return ""
        for tensor in response.output_tensors():
            text = self._odd(tensor)
            if text:
                return text
        return ""

    def _odd(self, tensor: Tensor) -> str:
        name = tensor.name()
        entry = self._outputs.get(name)
        if entry is None:
            return (
                f"output '{name}' is not in the configuration of model '{self._model}', "
                f"whose outputs are {_listed(self._outputs)}"
            )
        dims = entry["reshape"].get("shape", []) if "reshape" in entry else entry["dims"]
        shape = list(tensor._shape)
        item = shape[1:] if self._batches else shape
        found, wanted = _TYPES[tensor._code], str(entry["data_type"])
        fits = len(item) == len(dims) and all(want in (-1, got) for got, want in zip(item, dims))
        if self._batches and not shape:
            fits = False
        if not dims and "reshape" not in entry:  # the config does not specify them
            fits = True
        if fits and wanted in (found, "TYPE_INVALID"):
            return ""
        batch = " after the batch dimension" if self._batches else ""
        return (
            f"output '{name}' of model '{self._model}' is {found} with shape {shape}, "
            f"want {wanted} with dims {list(dims)}{batch}, as its configuration says"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _strange(what: str, names: Iterable[str], known: list[str], model: str) -> str:
    for name in names:
        if known and name not in known:
            return f"unexpected inference {what} '{name}' for model '{model}', whose {what}s are {_listed(known)}"
    return ""
