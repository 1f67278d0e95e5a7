"""Compares a thousand expressions over the API with Triton's results.

answers.json was recorded with Triton 2.51, CPython 3.11 and numpy 1.24: a model called
`expressions.outcome` for each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import c_python_backend_utils as c
import pytest
import triton_python_backend_utils as pb_utils
from expressions import outcome
from nereid_testing import Server

ANSWERS: dict[str, str] = json.loads((Path(__file__).parent / "answers.json").read_text("utf-8"))

#: Texts of the newer Triton that these modules follow.
NEWER = (
    (
        "error: c_python_backend_utils.TritonError = None)",
        "error: c_python_backend_utils.TritonError = None, parameters: object = None)",
    ),
    (
        "raises RuntimeError: Unable to cast Python instance to C++ type (",
        "raises RuntimeError: Unable to cast Python instance of type <class '{kind}'> to C++ type '?' (",
    ),
    ("numpy.bool_", "numpy.bool"),  # numpy 2
)

#: Deliberate differences, by reason.
PLAIN = "a method that every request needs refuses arguments in Python's words, which costs no time"
NATIVE = "the text is Python's own"
DEVIATIONS = {
    "T.triton_dtype()": "works here",
    "REQ.trace() is REQ.trace()": "nobody needs a new one",
    "type('Mine', (Tensor,), {'__init__': lambda self: None})()": "fails when it is used",
    "MetricFamily.COUNTER is c.COUNTER": "nobody needs a new one",
    "triton_to_numpy_type([])": "a number is asked for",
    "pb_utils.InferenceResponseSender": "both modules have all names",
    **dict.fromkeys(["T.as_numpy(1)", "T.as_numpy(x=1)", "Tensor.as_numpy()", "Tensor.as_numpy(3)"], PLAIN),
    **dict.fromkeys(["REQ.inputs(1)", "InferenceRequest.inputs()", "RES.output_tensors(1)"], PLAIN),
    **dict.fromkeys((f"deserialize_bytes_tensor({value})" for value in ("None", '"a"', "1", "[1]", "0")), NATIVE),
    **dict.fromkeys(["setattr(TritonError, 'INTERNAL', 1)", "setattr(ERR, 'INTERNAL', 1)"], NATIVE),
    **dict.fromkeys((f"setattr(TritonError.INTERNAL, {what})" for what in ("'name', 'x'", "'value', 3")), NATIVE),
}

#: These read attributes of None.
DEVIATIONS.update((key, NATIVE) for key in ANSWERS if "set_model_transaction_policy(None)" in key)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # numpy.matrix
@pytest.mark.parametrize("expression", ANSWERS)
def test_results_match_the_bindings(expression: str) -> None:
    with Server():  # for BLS
        want, got = ANSWERS[expression], outcome(expression, pb_utils, c)
    for older, newer in NEWER:
        kind = "str" if "udcff" in expression else "int"
        want, got = want.replace(older, newer.format(kind=kind)), got.replace("numpy.bool_", "numpy.bool")
    if expression in DEVIATIONS:
        assert got != want
        return
    if sys.version_info[:2] != (3, 11) and ("AttributeError: " in want or "positional argument" in want):
        want, got = want.partition(":")[0], got.partition(":")[0]
    # Python 3.14 has its own text for `in`.
    got = got.replace("'NoneType' is not a container or iterable", "'NoneType' is not iterable")
    assert got == want


def test_deviations_are_known() -> None:
    assert set(DEVIATIONS) <= set(ANSWERS)
