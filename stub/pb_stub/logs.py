"""Log messages for the supervisor."""

from __future__ import annotations

from c_python_backend_utils import runtime

from . import messages
from .channel import Channel
from .errors import StubError
from .pool import PoolExhausted

#: A longer message is truncated if the pool has no memory for it.
_CUT = 8000


class Logs:
    """Sends messages of enabled levels.

    Before `start` and in forked children, prints all to stderr.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._started = False
        self._wanted = (True, True, True, False)  # by level

    def start(self) -> None:
        self._started = True

    def settle(self, settings: messages.LogSettings) -> None:
        """Apply new settings."""
        self._wanted = (settings.info, settings.warning, settings.error, settings.verbose >= 1)

    def log(self, level: int, file: str, line: int, message: str) -> None:
        """Log a message of the model; file is a base name."""
        self._log(level, file, line, message, False, 0)

    def complain(self, level: int, message: str, batch: int = 0, depth: int = 0, once: str = "") -> None:
        """Log a message of the stub, optionally for a batch, at the frame depth levels up.

        Of messages with the same `once` from all instances of a model, the supervisor logs the
        first.
        """
        file, line = runtime.caller(depth + 1)
        self._log(level, file, line, message, True, batch, once)

    def _log(self, level: int, file: str, line: int, message: str, own: bool, batch: int, once: str = "") -> None:
        channel = self._channel
        if not self._started or channel.foreign:
            runtime.print_line(level, file, line, message)
            return
        if not self._wanted[level]:
            return
        try:
            try:
                channel.publish(messages.log(channel.life, level, file, line, message, own, batch, once))
            except PoolExhausted:
                message = f"{message[:_CUT]}… ({len(message)} characters)"
                channel.publish(messages.log(channel.life, level, file, line, message, own, batch, once))
        except StubError:
            runtime.print_line(level, file, line, message)  # the main thread notices the error itself
