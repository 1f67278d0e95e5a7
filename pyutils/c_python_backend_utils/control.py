"""load_model, unload_model and is_model_ready: control of the server's models."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from . import runtime
from .binding import Mismatch, Text, as_bool, as_text, from_text, incompatible, uncastable
from .error import TritonModelException
from .metric import refusal
from .runtime import Refused

_LOAD = ("(model_name: str, config: str = '', files: object = None) -> None",)
_UNLOAD = ("(model_name: str, unload_dependents: bool = False) -> None",)
_READY = ("(model_name: str, model_version: str = '') -> bool",)


def load_model(*args: Any, **named: Any) -> None:
    """Load or reload the model `model_name` and wait until it is ready.

    `config` is JSON that replaces its config.pbtxt; `files` maps names such as "file:1/model.py" to
    bytes.
    """
    try:
        name, config, files = _load_arguments(*args, **named)
        name, config = as_text(name), as_text(config)
    except (Mismatch, TypeError):
        raise incompatible("load_model", _LOAD, args, named) from None
    contents: Dict[Text, bytes] = {}
    if files is not None:
        if not isinstance(files, dict):
            raise TritonModelException(
                f"failed to load model '{from_text(name)}', "
                "files should be a dictionary of file paths and file contents"
            )
        for path, content in files.items():
            try:
                key = as_text(path)
            except Mismatch:
                raise uncastable(path) from None
            if not isinstance(content, bytes):
                raise TypeError(f"Object of type '{type(content).__name__}' is not an instance of 'bytes'")
            contents[key] = content
    try:
        runtime.current().load_model(name, config, contents)
    except Refused as error:
        raise refusal("Failed to load model: ", error) from None


def unload_model(*args: Any, **named: Any) -> None:
    """Start unloading `model_name`, even if it is not loaded.

    With `unload_dependents`, its dependents are unloaded too.
    """
    try:
        name, dependents = _unload_arguments(*args, **named)
        name, dependents = as_text(name), as_bool(dependents)
    except (Mismatch, TypeError):
        raise incompatible("unload_model", _UNLOAD, args, named) from None
    try:
        runtime.current().unload_model(name, dependents)
    except Refused as error:
        raise refusal("Failed to unload model: ", error) from None


def is_model_ready(*args: Any, **named: Any) -> bool:
    """Return whether version `model_version` (default: the highest) of `model_name` is ready.

    The server must know the model.
    """
    try:
        name, version = _ready_arguments(*args, **named)
        name, version = as_text(name), as_text(version)
    except (Mismatch, TypeError):
        raise incompatible("is_model_ready", _READY, args, named) from None
    try:
        return runtime.current().is_model_ready(name, version)
    except Refused as error:
        raise refusal("Failed to check model readiness: ", error) from None


def _load_arguments(model_name: object, config: object = "", files: object = None) -> Tuple[Any, Any, Any]:
    return model_name, config, files


def _unload_arguments(model_name: object, unload_dependents: object = False) -> Tuple[Any, Any]:
    return model_name, unload_dependents


def _ready_arguments(model_name: object, model_version: object = "") -> Tuple[Any, Any]:
    return model_name, model_version
