"""InferenceResponseSender: sends responses from any thread, even after `execute` has returned.

A sender is created when the model requests it, or when `execute` has returned without completing
the request. The request references it, so it lives until the model has released both. If FINAL was
not sent by then, its destructor reports this to the client.

Locks: `making` selects the thread that creates a request's sender, or completes the request without
one. A sender's own `_mu` is held from the check in `send` until the response is on its way, so
responses are sent in the order in which they were accepted. Destructors and signal handlers may
interrupt anywhere: the thread that holds `making` may acquire it again, `_mu` rejects it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn, Optional

from . import runtime
from .binding import MODULE, NOTHING, Mismatch, Unmakeable, as_integer, checked, incompatible
from .error import TritonModelException
from .response import InferenceResponse

FINAL = 1
RESCHEDULE = 2  # a release flag

#: The interval at which a waiting asyncio model checks whether its client has gone away.
_LOOK_SECONDS = 0.02

_U32 = 2**32 - 1
_SEND = (
    f"(self: {MODULE}.InferenceResponseSender, response: {MODULE}.InferenceResponse = None, flags: int = 0) -> None",
)

making = threading.RLock()
if hasattr(making, "_at_fork_reinit"):  # since Python 3.9
    os.register_at_fork(after_in_child=making._at_fork_reinit)

_me = threading.get_ident


@checked(is_cancelled="bool")
class InferenceResponseSender(Unmakeable):
    """Sends the responses to one request. `request.get_response_sender()` returns it."""

    __module__ = MODULE
    __slots__ = ("_cancelled", "_closed", "_mu", "_outlet", "_owner", "_release", "_sends")

    _cancelled: bool  # the last known state
    _closed: bool  # FINAL was sent, or the request has ended otherwise
    _mu: threading.Lock
    _outlet: Optional[runtime.Outlet]  # None if the model made the request
    _owner: int  # the thread that holds _mu
    _release: int  # the release flags of the request
    _sends: int  # number of accepted sends

    def send(self, response: Any = NOTHING, flags: Any = NOTHING, *rest: Any, **named: Any) -> None:
        """Send a response, the final flag, or both.

        The tensors are copied before this returns. It blocks while the client has too much to read.
        """
        given = None if response is NOTHING else response
        number = 0 if flags is NOTHING else flags
        try:
            if rest or named or not (given is None or isinstance(given, InferenceResponse)):
                raise Mismatch
            if number.__class__ is not int or not 0 <= number <= _U32:
                number = as_integer(number, 0, _U32)
        except Mismatch:
            args = tuple(arg for arg in (response, flags) if arg is not NOTHING)
            raise incompatible("send", _SEND, (self, *args, *rest), named) from None
        if number & ~FINAL:
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if not number and given is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        me = _me()
        if self._owner == me:
            raise TritonModelException(
                "Unable to send response. This thread is sending another one of this sender, which was interrupted."
            )
        with self._mu:
            self._owner = me
            try:
                outlet = self._accept(given is not None, number == FINAL)
                outlet.send(given, number == FINAL)
            finally:
                self._owner = 0

    def is_cancelled(self) -> bool:
        """Return whether the client has gone away. After completion, the last known state."""
        if not self._cancelled and self._outlet is not None:
            self._cancelled = self._outlet.is_cancelled()
        return self._cancelled

    async def cancelled(self) -> bool:
        """Wait until the client goes away (True) or the request is complete (False).

        For models with an asyncio loop. Triton lacks this method.
        """
        import asyncio

        while not self.is_cancelled():
            if self._closed or self._outlet is None:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    def _accept(self, response: bool, final: bool) -> runtime.Outlet:
        """Check a send against the state and update it; the caller holds _mu."""
        outlet = self._outlet
        if outlet is None:
            _refuse("Response sender has no reference to the decoupled state of the model.")
        if not outlet.decoupled:
            if response and self._sends:
                _refuse("Non-decoupled model cannot send more than one response.")
            if not response and not self._sends:
                _refuse("Non-decoupled model cannot send complete final before sending a response.")
        if self._closed:
            _refuse("Response sender has been closed.")
        self._sends += 1
        self._closed = final
        return outlet

    def _answer(self) -> None:
        """Record a response that the model has returned instead of sending it."""
        with self._mu:
            self._accept(True, True)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._outlet is not None:
            self._closed = True
            self._outlet.dropped(self._sends)


def _refuse(text: str) -> NoReturn:
    raise TritonModelException(f"Unable to send response. {text}")


def sender_of(outlet: Optional[runtime.Outlet], closed: bool = False, sends: int = 0) -> InferenceResponseSender:
    """Make the sender of a request whose responses go to outlet."""
    sender = InferenceResponseSender.__new__(InferenceResponseSender)
    sender._cancelled = False
    sender._mu = threading.Lock()
    sender._owner = 0
    sender._release = 1
    sender._sends = sends
    sender._outlet = outlet
    sender._closed = closed
    return sender
