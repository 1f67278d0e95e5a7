"""The user's model: import, completion of its config, creation, initialize, execute, finalize.

All of it runs on the main thread, except `is_ready`.
"""

from __future__ import annotations

import json
import sys
import threading
from types import CodeType
from typing import TYPE_CHECKING, Any, Callable

from c_python_backend_utils.modelconfig import ModelConfig
from c_python_backend_utils.request import InferenceRequest

from . import messages

if TYPE_CHECKING:
    from .coroutines import EventLoop

_LONGEST_CONFIG = messages.MAX_MAP - 4096


#: Instances of a process import their model one after the other: while an import fails in one thread,
#: another may get a KeyError from it.
_importing = threading.Lock()


class MissingExecute(Exception):
    """The model has no `execute`; the text is Triton's."""


class NotCompleted(Exception):
    """The result of `auto_complete_config` is not a config; the text is Triton's."""


class Model:
    """One TritonPythonModel. Exceptions of its code propagate unchanged."""

    def __init__(self, path: str, module: str) -> None:
        self._path = path
        with _importing:
            # Not importlib.import_module: it is a Python function, which would appear in users'
            # tracebacks.
            __import__(module, None, None, ["__doc__"], 0)
            self._class = sys.modules[module].TritonPythonModel
        self._instance: Any = None
        self._coroutines: EventLoop | None = None
        self._other_coroutines: EventLoop | None = None  # for is_ready, if execute has no loop
        self.has_is_ready = False

    def complete(self, name: str, config: str) -> str:
        """Let the model complete its config, as JSON text; returns such text, or "" if unchanged.

        NotCompleted if its result is not a config.
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
        """Create the instance of the model's class."""
        self._instance = self._class()

    def initialize(self, args: Any) -> None:
        initialize = getattr(self._instance, "initialize", None)
        if initialize is not None:
            initialize(args)
        # Models written before this method existed may have an attribute of that name.
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
        """Return where `execute` starts, as in an exception's text; "" if it is not Python code."""
        execute = getattr(self._instance, "execute", None)
        code = getattr(execute, "__code__", None)  # a method has its function's
        return f"{code.co_filename}({code.co_firstlineno}): {code.co_name}" if isinstance(code, CodeType) else ""

    def event_loop(self) -> EventLoop:
        """Return the loop of an asynchronous `execute`.

        It becomes the main thread's current loop.
        """
        # Importing asyncio takes 20 ms, and models that return a list do not need it.
        from .coroutines import EventLoop

        if self._coroutines is None:
            self._coroutines = EventLoop()
        return self._coroutines

    def is_ready(self) -> Any:
        """Run `is_ready`; its result may be anything. Called in a separate thread."""
        ask = getattr(self._instance, "is_ready", None)
        if not callable(ask):  # it was removed after initialize
            return True
        answer = ask()
        if answer.__class__ is bool:
            return answer
        from .coroutines import EventLoop, is_coroutine

        if not is_coroutine(answer):
            return answer
        # The main thread creates the loop of `execute`, which becomes current there.
        if self._coroutines is not None:
            return self._coroutines.run(0, answer)
        if self._other_coroutines is None:
            self._other_coroutines = EventLoop()
        return self._other_coroutines.run(0, answer)

    def finalize(self, finalized: Callable[[], None]) -> None:
        """Run `finalize`, call finalized, and drop the model."""
        for coroutines in (self._coroutines, self._other_coroutines):
            if coroutines is not None:
                coroutines.stop()
        finalize = getattr(self._instance, "finalize", None)
        try:
            if finalize is not None:
                finalize()
        finally:
            finalized()
            self._instance = None


#: The code that calls the model's code on the main thread.
CALLERS = frozenset(
    function.__code__
    for function in (Model.__init__, Model.complete, Model.make, Model.initialize, Model.execute, Model.finalize)
)


def as_json(config: Any) -> str:
    """Encode a completed config as JSON.

    The texts of NotCompleted are Triton's, except the last.
    """
    text = json.dumps(config)
    try:
        json.dumps(config, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotCompleted("Failed to parse auto-complete JSON.") from None
    except ValueError:
        raise NotCompleted("Failed to accept document, invalid JSON.") from None
    if len(text) > _LONGEST_CONFIG:
        raise NotCompleted(f"the completed config has {len(text)} bytes, at most {_LONGEST_CONFIG} are allowed")
    return text
