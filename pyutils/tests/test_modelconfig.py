"""ModelConfig: allowed changes of a config, and the texts of forbidden ones."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
import triton_python_backend_utils as pb_utils

WHERE = "auto-complete-config function for model 'm'"
X = {"name": "X", "data_type": "TYPE_INT32", "dims": [16], "optional": False}
UNSET = {"name": "U", "data_type": "TYPE_INVALID", "dims": [], "optional": True}
Y = {"name": "Y", "data_type": "TYPE_INT32", "dims": [16]}
CONFIG = {"name": "m", "max_batch_size": 6, "input": [X, UNSET], "output": [Y]}
Call = Callable[[pb_utils.ModelConfig], Any]


def config(**changes: Any) -> pb_utils.ModelConfig:
    return pb_utils.ModelConfig(json.dumps({**CONFIG, **changes}))


def test_as_dict() -> None:
    """It returns the dict itself."""
    made = config()
    assert made.as_dict() == CONFIG and made.as_dict() is made.as_dict() is made._model_config
    made.as_dict()["max_batch_size"] = 1
    made.set_max_batch_size(2)
    assert made.as_dict()["max_batch_size"] == 2
    assert repr(type(made)) == "<class 'triton_python_backend_utils.ModelConfig'>"


#: calls, the configs they change, and the results
GOOD: dict[str, tuple[Call, dict[str, Any], dict[str, Any]]] = {
    "same batch": (lambda c: c.set_max_batch_size(6), {}, {}),
    "larger batch": (lambda c: c.set_max_batch_size(8), {}, {"max_batch_size": 8}),
    "batch at all": (lambda c: c.set_max_batch_size(4), {"max_batch_size": 0}, {"max_batch_size": 4}),
    "batching": (lambda c: c.set_dynamic_batching(), {}, {"dynamic_batching": {}}),
    "batching already": (lambda c: c.set_dynamic_batching(), {"dynamic_batching": {"a": 1}}, {"dynamic_batching": {"a": 1}}),
    "decoupled": (
        lambda c: c.set_model_transaction_policy({"decoupled": True}), {}, {"model_transaction_policy": {"decoupled": True}},
    ),
    "decoupled already": (
        lambda c: c.set_model_transaction_policy({"decoupled": True}),
        {"model_transaction_policy": {"decoupled": True}},
        {"model_transaction_policy": {"decoupled": True}},
    ),
    "new input": (
        lambda c: c.add_input({"name": "N", "data_type": "TYPE_FP32", "dims": [1], "optional": True}),
        {},
        {"input": [X, UNSET, {"name": "N", "data_type": "TYPE_FP32", "dims": [1], "optional": True}]},
    ),
    "same input": (lambda c: c.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [16]}), {}, {}),
    "same input, not optional": (lambda c: c.add_input(dict(X)), {}, {}),
    "unset input": (
        lambda c: c.add_input({"name": "U", "data_type": "TYPE_FP32", "dims": [4]}),
        {},
        {"input": [X, {"name": "U", "data_type": "TYPE_FP32", "dims": [4], "optional": True}]},
    ),
    "new output": (
        lambda c: c.add_output({"name": "X", "data_type": "TYPE_FP32", "dims": [1]}),
        {},
        {"output": [Y, {"name": "X", "data_type": "TYPE_FP32", "dims": [1]}]},
    ),
    "no optional in the config": (
        lambda c: c.add_input({"name": "Y", "data_type": "TYPE_INT32", "dims": [16], "optional": True}),
        {"input": [Y]},
        {"input": [{**Y, "optional": True}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_good_changes_are_made(case: str) -> None:
    call, before, after = GOOD[case]
    made = config(**before)
    assert call(made) is None
    assert made.as_dict() == {**CONFIG, **before, **after}


def test_own_dict_is_kept() -> None:
    made = config()
    given: dict[str, Any] = {"name": "N", "data_type": "TYPE_FP32", "dims": [1]}
    made.add_input(given)
    assert made.as_dict()["input"][-1] is given


def _input(**given: Any) -> Call:
    return lambda c: c.add_input(given)


def _output(**given: Any) -> Call:
    return lambda c: c.add_output(given)


BAD: dict[str, tuple[Call, dict[str, Any], str]] = {
    "smaller batch": (
        lambda c: c.set_max_batch_size(4), {}, f"configuration specified max_batch_size 6, but in {WHERE} specified max_batch_size 4",
    ),
    "sequences": (
        lambda c: c.set_dynamic_batching(),
        {"sequence_batching": {}},
        f"Configuration specified scheduling_choice as 'sequence_batching', but {WHERE} tries to set scheduling_choice as 'dynamic_batching'",
    ),
    "ensemble": (
        lambda c: c.set_dynamic_batching(),
        {"ensemble_scheduling": {}},
        f"Configuration specified scheduling_choice as 'ensemble_scheduling', but {WHERE} tries to set scheduling_choice as 'dynamic_batching'",
    ),
    "policy": (
        lambda c: c.set_model_transaction_policy({"decoupled": True, "x": 1}),
        {},
        f"model transaction property in {WHERE} contains property other than 'decoupled'.",
    ),
    "decoupled": (
        lambda c: c.set_model_transaction_policy({"decoupled": True}),
        {"model_transaction_policy": {"decoupled": False}},
        "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'False'.",
    ),
    # In the order of the checks: each input also has all later faults.
    "input with more": (
        _input(name="X", more=1), {}, f"input 'X' in {WHERE} contains property other than 'name', 'data_type', 'dims' and 'optional'.",
    ),
    "input without name": (_input(optional=True), {}, f"input in {WHERE} is missing 'name' property."),
    "input without type": (_input(name="X"), {}, f"input 'X' in {WHERE} is missing 'data_type' property."),
    "input without dims": (_input(name="X", data_type="TYPE_FP32"), {}, f"input 'X' in {WHERE} is missing 'dims' property."),
    "input of another type": (
        _input(name="X", data_type="TYPE_FP32", dims=[4], optional=True),
        {},
        "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'X', model provides TYPE_FP32",
    ),
    "input of other dims": (
        _input(name="X", data_type="TYPE_INT32", dims=[4], optional=True),
        {},
        "model 'm', tensor 'X': the model expects dims [4] but the model configuration specifies dims [16]",
    ),
    "optional input": (
        _input(name="X", data_type="TYPE_INT32", dims=[16], optional=True),
        {},
        "model 'm', tensor 'X': the model expects optional True but the model configuration specifies optional False",
    ),
    "output with more": (
        _output(name="Y", data_type="TYPE_INT32", dims=[16], optional=True),
        {},
        f"output 'Y' in {WHERE} contains property other than 'name', 'data_type' and 'dims'.",
    ),
    "output without name": (_output(dims=[1]), {}, f"output in {WHERE} is missing 'name' property."),
    "output without type": (_output(name="Y"), {}, f"output 'Y' in {WHERE} is missing 'data_type' property."),
    "output without dims": (_output(name="Y", data_type="TYPE_FP32"), {}, f"output 'Y' in {WHERE} is missing 'dims' property."),
    "output of another type": (
        _output(name="Y", data_type="TYPE_FP32", dims=[16]),
        {},
        "unable to load model 'm', configuration expects datatype TYPE_INT32 for output 'Y', model provides TYPE_FP32",
    ),
    "output of other dims": (
        _output(name="Y", data_type="TYPE_INT32", dims=[]),
        {},
        "model 'm', tensor 'Y': the model expects dims [] but the model configuration specifies dims [16]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_changes_raise_and_change_nothing(case: str) -> None:
    call, before, text = BAD[case]
    made = config(**before)
    with pytest.raises(ValueError) as raised:
        call(made)
    assert str(raised.value) == text
    assert made.as_dict() == {**CONFIG, **before}


def test_unknown_property_without_name() -> None:
    with pytest.raises(KeyError, match="^'name'$"):
        config().add_input({"more": 1})
