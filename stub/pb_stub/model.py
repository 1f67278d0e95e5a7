"""The user's model: imported, made, initialized, executed, finalized. All of it happens on the main thread."""

from __future__ import annotations

import sys
from typing import Any

from c_python_backend_utils.request import InferenceRequest


class MissingExecute(Exception):
    """The model has no `execute`; the text is Triton's."""


class Model:
    """One TritonPythonModel. Exceptions of its code pass through unchanged."""

    def __init__(self, path: str, module: str) -> None:
        self._path = path
        # Not importlib.import_module: that is a Python function, and would stand in the tracebacks that users see.
        __import__(module, None, None, ["__doc__"], 0)
        self._instance = sys.modules[module].TritonPythonModel()
        self.has_is_ready = False
        #: Whether the model would complete its config, which nobody asks it to.
        self.completes = hasattr(self._instance, "auto_complete_config")

    def initialize(self, args: Any) -> None:
        initialize = getattr(self._instance, "initialize", None)
        if initialize is not None:
            initialize(args)
        self.has_is_ready = hasattr(self._instance, "is_ready")

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Run `execute`; what it returns may be anything."""
        try:
            execute = self._instance.execute
        except AttributeError:
            if hasattr(self._instance, "execute"):
                raise
            raise MissingExecute(f"Python model {self._path} does not implement `execute` method.") from None
        return execute(requests)

    def finalize(self) -> None:
        finalize = getattr(self._instance, "finalize", None)
        try:
            if finalize is not None:
                finalize()
        finally:
            self._instance = None
