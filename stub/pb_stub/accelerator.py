"""The compiled part of the stub, if there is one for this interpreter (docs/accelerator.md).

It replaces functions that every request uses. Each has a counterpart in Python, which does the same
and handles everything that is not usual. NEREID_ACCELERATOR=off disables it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from . import layout, messages, spin
from .errors import ProtocolError

VARIABLE = "NEREID_ACCELERATOR"

#: The compiled module, or None.
module: Any = None
#: Why it is missing.
reason = ""
#: Whether the reason is a fault that the log should name.
failed = False

#: The free-threaded Pythons that lay out objects as the compiled module expects. They have no
#: stable ABI.
_FREE_THREADED = (3, 13), (3, 14)

_attached = False


def _facts() -> dict[str, int]:
    """Return the facts that the compiled module must agree with."""
    return {
        "OBJECT": object.__basicsize__,
        "HEADER": messages.HEADER.size,
        "REQUEST": messages.REQUEST.size,
        "DESCRIPTOR": messages.DESCRIPTOR.size,
        "RESPONSE_HEAD": messages.RESPONSE_HEAD.size,
        "INFER_HEAD": messages.INFER_HEAD.size,
        "INFER": messages.INFER,
        "EXECUTED_HEAD": messages.EXECUTED_HEAD.size,
        "EXECUTED": messages.EXECUTED,
        "RESPONSE": messages.RESPONSE,
        "EXECUTE_COPIES": messages.EXECUTE_COPIES,
        "ALL_OUTPUTS": messages.ALL_OUTPUTS,
        "CORRELATION_TEXT": messages.CORRELATION_TEXT,
        "RESPONSE_PRESENT": messages.RESPONSE_PRESENT,
        "RESPONSE_FINAL": messages.RESPONSE_FINAL,
        "TAIL_AT": layout.TAIL_AT,
        "POSTED_AT": layout.POSTED_AT,
        "SLEEP_AT": layout.SLEEP_AT,
        "HEAD_AT": layout.HEAD_AT,
        "RING_AT": layout.RING_AT,
        "RING_SIZE": layout.RING_SIZE,
        "MAX_INLINE": layout.MAX_INLINE,
        "MAX_INLINE_TOTAL": layout.MAX_INLINE_TOTAL,
        "REGION_FRAME": layout.REGION_FRAME,
        "REGION_REQUESTS": layout.REGION_REQUESTS,
        "REGION_ARENA": layout.REGION_ARENA,
        "PAGE": layout.PAGE,
        "SPIN_STEP_NS": spin.SPIN_STEP_NS,
        "SLOW_YIELD_NS": spin.SLOW_YIELD_NS,
        "LONGEST_WAIT": spin.LONGEST_WAIT,
        "RETURNED_AT": layout.RETURNED_AT,
        "COLLECTED_AT": layout.COLLECTED_AT,
        "RETURN_RING_AT": layout.RETURN_RING_AT,
        "RETURN_RING_SLOTS": layout.RETURN_RING_SLOTS,
    }


def _import() -> None:
    global module, reason, failed  # noqa: PLW0603  # one in a process
    if os.environ.get(VARIABLE, "") == "off":
        reason = f"{VARIABLE} is off"
        return
    name, suffix = "_accelerator", ".abi3.so"
    if "t" in sys.abiflags:
        name, suffix = "_accelerator_t", ".so"
        if sys.version_info[:2] not in _FREE_THREADED:
            reason = "it is not made for this version of free-threaded Python"
            return
    if not os.path.exists(os.path.join(os.path.dirname(__file__), name + suffix)):
        reason = "this program was built without it"
        return
    try:
        found = importlib.import_module(f"pb_stub.{name}")
        if found.facts != _facts():
            raise ImportError("it is for another version of the stub")
    except Exception as error:  # of the loader: another libc or architecture
        reason = f"it cannot be loaded: {error}"
        failed = True
        return
    found.raises(ProtocolError)
    module = found


_import()


def attach(loan: Any, block: Any, *others: Any) -> None:
    """Replace the functions of the model's API, once, after numpy was imported.

    The classes are those of modules that import this one (see outgoing.accelerate).
    """
    global module, reason, failed, _attached  # noqa: PLW0603
    if module is None or _attached:
        return
    _attached = True
    import numpy as np
    import triton_python_backend_utils as utils
    from c_python_backend_utils import strings
    from c_python_backend_utils.datatypes import CODES, NUMPY
    from c_python_backend_utils.parameters import NONE
    from c_python_backend_utils.request import InferenceRequest
    from c_python_backend_utils.response import InferenceResponse
    from c_python_backend_utils.tensor import Tensor

    replaced: tuple[tuple[Any, str], ...] = (
        (Tensor, "__init__"),
        (Tensor, "as_numpy"),
        (InferenceResponse, "__init__"),
        (utils, "get_input_tensor_by_name"),
        (utils, "get_output_tensor_by_name"),
        (loan, "__del__"),
        (loan, "_died"),
        (block, "__del__"),
    )
    classes = Tensor, InferenceRequest, InferenceResponse, np.ndarray
    try:
        module.configure(*classes, NUMPY, CODES, NONE, loan, block, *others)
        made: Any = module.methods(*(getattr(owner, name) for owner, name in replaced))
    except Exception as error:
        module, reason, failed = None, f"this Python lays out objects differently: {error!r}", True
        return
    for (owner, name), function in zip(replaced, made):
        setattr(owner, name, function)
    strings.fast = module
