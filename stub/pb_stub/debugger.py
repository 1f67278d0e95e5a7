"""pdb at the server's terminal, for models in development: `--dev`.

`breakpoint()` and `pdb.set_trace()` in a model use a Debugger, which owns the terminal from its
first prompt until the user continues or quits, or the call of the model returns.
"""

from __future__ import annotations

import os
import pdb
import sys
from types import FrameType
from typing import Any, Callable

from . import terminal
from .model import Model


class Debugger(pdb.Pdb):
    """A pdb that owns the terminal during its dialog."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # Keys such as Ctrl-C are for the prompt, and signal handlers belong to the stub. After the
        # model's code returns, the stub's code follows.
        named.update(nosigint=True, skip=["pb_stub.*", "c_python_backend_utils.*"])
        named.pop("mode", None)  # it would make quit end the process
        super().__init__(*arguments, **named)

    def interaction(self, *arguments: Any, **named: Any) -> None:
        """Talk to the user, at the terminal."""
        terminal.take()
        super().interaction(*arguments, **named)

    def set_continue(self) -> None:
        """Continue without stops."""
        super().set_continue()
        terminal.give_back()

    def set_quit(self) -> None:
        """Continue with an exception, which fails the request."""
        super().set_quit()
        terminal.give_back()


def install() -> None:
    """Make the model's breakpoints use the Debugger."""
    pdb.Pdb = Debugger  # type: ignore[misc]
    sys.breakpointhook = _stop


def _stop(*arguments: Any, **named: Any) -> Any:
    """Implement `breakpoint()`. A debugger set by PYTHONBREAKPOINT is called instead."""
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **named)
    frame: FrameType | None = sys._getframe(1)
    Debugger().set_trace(frame)
    return None


def attend(model: Model) -> None:
    """Release the terminal and stop stepping whenever a call of the model's code has returned."""
    model.initialize = _closely(model.initialize)  # type: ignore[method-assign,assignment]
    model.execute = _closely(model.execute)  # type: ignore[method-assign,assignment]


def _closely(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def closely(argument: Any) -> Any:
        try:
            return call(argument)
        finally:
            if terminal.held():
                sys.settrace(None)
                terminal.give_back()

    return closely
