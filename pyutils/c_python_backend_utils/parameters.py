"""Custom parameters of requests and responses, kept as JSON text."""

from __future__ import annotations

import json

from .error import TritonModelException

#: The text of empty parameters.
NONE = "{}"


def encode(parameters: object) -> str:
    """Check a model's dict and encode it as JSON; TritonModelException names the bad entry."""
    if parameters is None:
        return NONE
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect N8pybind114dictE, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return json.dumps(parameters)
