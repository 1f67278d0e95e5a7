"""Errors between a stub and its supervisor.

StubError
├── ProtocolError    the ring, or other shared state, can no longer be trusted
├── NotUnderstood    a frame does not follow the protocol; the ring is intact
├── Gone             the other side has exited
├── Closed           the model has closed a descriptor to the other side
└── ForeignProcess   this is a child that the model forked, not the stub
"""

from __future__ import annotations


class StubError(Exception):
    """Base of this tree."""


class ProtocolError(StubError):
    """The supervisor violates the protocol: the versions differ, or one side has a bug."""


class NotUnderstood(StubError):
    """A complete frame has a body that this stub cannot decode. Only its requests fail."""


class Gone(StubError):
    """The supervisor has exited."""


class Closed(StubError):
    """A descriptor that leads to the supervisor no longer works."""


class ForeignProcess(StubError):
    """A process that the model forked tried to talk to the supervisor."""


class Detached(SystemExit):
    """The instance has ended, and its process goes on: this thread of the instance ends quietly."""
