"""The user's model: imported, asked to complete its config, made, initialized, executed, finalized.

All of it happens on the main thread, but for `is_ready`.
"""

from __future__ import annotations

import json
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any, Callable

from c_python_backend_utils.modelconfig import ModelConfig
from c_python_backend_utils.request import InferenceRequest

from . import messages

if TYPE_CHECKING:
    from .coroutines import EventLoop

_LONGEST_CONFIG = messages.MAX_MAP - 4096


class MissingExecute(Exception):
    """The model has no `execute`; the text is Triton's."""


class NotCompleted(Exception):
    """What `auto_complete_config` returned is no config; the text is Triton's."""


class Model:
    """One TritonPythonModel. Exceptions of its code pass through unchanged."""

    def __init__(self, path: str, module: str) -> None:
        self._path = path
        # Not importlib.import_module: that is a Python function, and would stand in the tracebacks that users see.
        __import__(module, None, None, ["__doc__"], 0)
        self._class = sys.modules[module].TritonPythonModel
        self._instance: Any = None
        self._coroutines: EventLoop | None = None
        self._other_coroutines: EventLoop | None = None  # of is_ready, where execute has none
        self.has_is_ready = False

    def complete(self, name: str, config: str) -> str:
        """Have the model complete its config, JSON text; the answer is such a text, or empty if it has nothing to say.

        NotCompleted if what it returns is no config.
        """
        if not hasattr(self._class, "auto_complete_config"):
            return ""
        answer = self._class.auto_complete_config(ModelConfig(config))
        if not isinstance(answer, ModelConfig):
            raise NotCompleted(
                f"auto_complete_config function in model '{name}' must return a valid pb.ModelConfig object."
            )
        return as_json(answer.as_dict())

    def make(self) -> None:
        """Make the instance of the model's class."""
        self._instance = self._class()

    def initialize(self, args: Any) -> None:
        initialize = getattr(self._instance, "initialize", None)
        if initialize is not None:
            initialize(args)
        # Models from before there was such a method may have an attribute of that name.
        self.has_is_ready = callable(getattr(self._instance, "is_ready", None))

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Run `execute`; its result may be anything."""
        try:
            execute = self._instance.execute
        except AttributeError:
            if hasattr(self._instance, "execute"):
                raise
            raise MissingExecute(f"Python model {self._path} does not implement `execute` method.") from None
        return execute(requests)

    def place_of_execute(self) -> str:
        """Where `execute` begins, as it stands in the text of an exception; "" if it is not written in Python."""
        execute = getattr(self._instance, "execute", None)
        code = getattr(execute, "__code__", None)  # that of a method is its function's
        return f"{code.co_filename}({code.co_firstlineno}): {code.co_name}" if isinstance(code, CodeType) else ""

    def event_loop(self) -> EventLoop:
        """The loop of an asynchronous `execute`; for the main thread, whose current loop it becomes."""
        # asyncio takes 20 ms to import: models that return a list never need it.
        from .coroutines import EventLoop

        if self._coroutines is None:
            self._coroutines = EventLoop()
        return self._coroutines

    def is_ready(self) -> Any:
        """Run `is_ready`; its result may be anything. Called in a thread of its own."""
        ask = getattr(self._instance, "is_ready", None)
        if not callable(ask):  # it has been taken away since initialize
            return True
        answer = ask()
        if answer.__class__ is bool:
            return answer
        from .coroutines import EventLoop, is_coroutine

        if not is_coroutine(answer):
            return answer
        # The loop of `execute` is made by the main thread, whose current loop it becomes.
        if self._coroutines is not None:
            return self._coroutines.run(0, answer)
        if self._other_coroutines is None:
            self._other_coroutines = EventLoop()
        return self._other_coroutines.run(0, answer)

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


#: The code that calls the model's on the main thread.
CALLERS = frozenset(
    function.__code__
    for function in (Model.__init__, Model.complete, Model.make, Model.initialize, Model.execute, Model.finalize)
)


def as_json(config: Any) -> str:
    """Write a config that the model has completed; the texts of NotCompleted are Triton's, but for the last."""
    text = json.dumps(config)
    try:
        json.dumps(config, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotCompleted("Failed to parse auto-complete JSON.") from None
    except ValueError:
        raise NotCompleted("Failed to accept document, invalid JSON.") from None
    if len(text) > _LONGEST_CONFIG:
        raise NotCompleted(f"the completed config has {len(text)} bytes, at most {_LONGEST_CONFIG} can be")
    return text
