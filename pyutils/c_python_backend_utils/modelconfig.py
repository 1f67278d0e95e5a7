"""ModelConfig: the config that the model's `auto_complete_config` completes."""

from __future__ import annotations

import json
from typing import Any, Dict, NoReturn, Tuple

_INPUT = ("name", "data_type", "dims", "optional")
_OUTPUT = ("name", "data_type", "dims")
_REQUIRED = ("name", "data_type", "dims")
_UNSET = "TYPE_INVALID"


class ModelConfig:
    """A model's config, parsed from its JSON text.

    All methods change the same dict, which `as_dict` returns. The server uses its `max_batch_size`,
    `input`, `output`, its scheduling choice if the config has none, and whether the model is
    decoupled.
    """

    __module__ = "triton_python_backend_utils"

    def __init__(self, model_config: str) -> None:
        self._model_config: Dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> Dict[str, Any]:
        """Return the config itself, not a copy. `input` and `output` are lists, possibly empty."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch; ValueError if the config has a larger one."""
        configured = self._model_config["max_batch_size"]
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in {self._where()} specified "
                f"max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Choose the dynamic batcher; ValueError if the config has another scheduler."""
        for choice in ("sequence_batching", "ensemble_scheduling"):
            if choice in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{choice}', but {self._where()} tries to set "
                    "scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: Dict[str, Any]) -> None:  # noqa: A002  # the name is Triton's
        """Add an input: a dict with `name`, `data_type`, `dims` and optionally `optional`.

        An existing input is completed; ValueError if the two contradict each other.
        """
        self._add("input", input, _INPUT, "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, output: Dict[str, Any]) -> None:
        """Add an output: a dict with `name`, `data_type` and `dims`.

        An existing output is completed; ValueError if the two contradict each other.
        """
        self._add("output", output, _OUTPUT, "'name', 'data_type' and 'dims'")

    def set_model_transaction_policy(self, transaction_policy_dict: Dict[str, Any]) -> None:
        """Set `{"decoupled": bool}`; ValueError if the config contradicts it."""
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(
                    f"model transaction property in {self._where()} contains property other than 'decoupled'."
                )
        configured = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        decoupled = transaction_policy_dict["decoupled"]
        if configured.setdefault("decoupled", decoupled) != decoupled:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name()}', "
                f"which is already set to '{configured['decoupled']}'."
            )

    def _add(self, kind: str, given: Dict[str, Any], allowed: Tuple[str, ...], listed: str) -> None:
        """Add an input or output, or complete the existing one of that name."""
        for key in given:
            if key not in allowed:
                raise ValueError(f"{kind} '{given['name']}' in {self._where()} contains property other than {listed}.")
        for key in _REQUIRED:
            if key not in given:
                name = f"'{given['name']}' " if "name" in given else ""
                raise ValueError(f"{kind} {name}in {self._where()} is missing '{key}' property.")
        tensors = self._model_config[kind]
        for known in tensors:
            if known["name"] == given["name"]:
                self._complete(kind, known, given)
                return
        tensors.append(given)

    def _complete(self, kind: str, known: Dict[str, Any], given: Dict[str, Any]) -> None:
        """Complete an input or output of the config."""
        name = known["name"]
        if known["data_type"] not in (_UNSET, given["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name()}', configuration expects datatype {known['data_type']} "
                f"for {kind} '{name}', model provides {given['data_type']}"
            )
        if known["dims"] and known["dims"] != given["dims"]:
            self._contradict(name, "dims", given["dims"], known["dims"])
        if "optional" in given and "optional" in known and given["optional"] != known["optional"]:
            self._contradict(name, "optional", given["optional"], known["optional"])
        known.update(given)

    def _contradict(self, tensor: str, what: str, given: object, known: object) -> NoReturn:
        raise ValueError(
            f"model '{self._name()}', tensor '{tensor}': the model expects {what} {given} "
            f"but the model configuration specifies {what} {known}"
        )

    def _where(self) -> str:
        return f"auto-complete-config function for model '{self._name()}'"

    def _name(self) -> Any:
        return self._model_config["name"]
