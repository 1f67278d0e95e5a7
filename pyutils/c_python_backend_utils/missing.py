"""What Triton's modules have and these do not yet: models that ask for it are told so.

The names look missing, so that a model which tries them with hasattr or getattr goes its other way.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

#: The names by the module they are missing in.
NAMES = {
    "triton_python_backend_utils": frozenset(
        (
            "InferenceResponseSender",
        )
    ),
    "c_python_backend_utils": frozenset(
        (
            "InferenceResponseSender",
        )
    ),
}


def refuse(module: str, name: str) -> NoReturn:
    """Say that a module lacks a name, for the module's __getattr__: an AttributeError.

    `from module import name` would replace its text by one of its own, hence it gets an ImportError.
    """
    if name not in NAMES[module]:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    text = f"{module}.{name} is not supported by Nereid yet"
    if _is_import(sys._getframe(2)):
        raise ImportError(text, name=module)
    raise AttributeError(text)


def _is_import(frame: Any) -> bool:
    """Whether the frame is executing the name of a `from ... import`."""
    from opcode import opmap

    return bool(frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])
