"""pdb at the terminal of the server, for models that are being developed: `--dev`.

`breakpoint()` and `pdb.set_trace()` of a model get a Debugger, which has the terminal from its first prompt until the
user continues or quits, or until the call of the model has returned.
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
    """A pdb that has the terminal while it talks."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # Keys such as Ctrl-C are for the prompt, and handlers of signals belong to the stub. What follows a return of
        # the model's code is the stub's.
        named.update(nosigint=True, skip=["pb_stub.*", "c_python_backend_utils.*"])
        named.pop("mode", None)  # which would have quit end the process
        super().__init__(*arguments, **named)

    def interaction(self, *arguments: Any, **named: Any) -> None:
        """Talk to the user, at the terminal."""
        terminal.take()
        super().interaction(*arguments, **named)

    def set_continue(self) -> None:
        """Go on without a stop."""
        super().set_continue()
        terminal.give_back()

    def set_quit(self) -> None:
        """Go on by an exception, which fails the request."""
        super().set_quit()
        terminal.give_back()


def install() -> None:
    """Have the model's breakpoints find the Debugger."""
    pdb.Pdb = Debugger  # type: ignore[misc]
    sys.breakpointhook = _stop


def _stop(*arguments: Any, **named: Any) -> Any:
    """What `breakpoint()` does. Where the user has named a debugger with PYTHONBREAKPOINT, it is called."""
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **named)
    frame: FrameType | None = sys._getframe(1)
    Debugger().set_trace(frame)
    return None


def attend(model: Model) -> None:
    """Have the terminal given back, and stepping end, when a call of the model's code has returned."""
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
