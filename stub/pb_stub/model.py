"""The user's model: imported, made, initialized, executed, finalized. All of it happens on the main thread."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

from c_python_backend_utils.request import InferenceRequest

if TYPE_CHECKING:
    from .coroutines import EventLoop


class MissingExecute(Exception):
    """The model has no `execute`; the text is Triton's."""


class Model:
    """One TritonPythonModel. Exceptions of its code pass through unchanged."""

    def __init__(self, path: str, module: str) -> None:
        self._path = path
        # Not importlib.import_module: that is a Python function, and would stand in the tracebacks that users see.
        __import__(module, None, None, ["__doc__"], 0)
        self._instance = sys.modules[module].TritonPythonModel()
        self._coroutines: EventLoop | None = None
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
        result = execute(requests)
        if result.__class__ is list or result is None:
            return result
        return self._awaited(result)

    def _awaited(self, result: Any) -> Any:
        """Run a coroutine to its end; anything else is returned as it is."""
        # asyncio takes 20 ms to import: models that return a list never need it.
        from .coroutines import EventLoop, is_coroutine

        if not is_coroutine(result):
            return result
        if self._coroutines is None:
            self._coroutines = EventLoop()
        return self._coroutines.run(result)

    def finalize(self, finalized: Callable[[], None]) -> None:
        """Run `finalize`, call finalized, and drop the model."""
        if self._coroutines is not None:
            self._coroutines.stop()
        finalize = getattr(self._instance, "finalize", None)
        try:
            if finalize is not None:
                finalize()
        finally:
            finalized()
            self._instance = None
