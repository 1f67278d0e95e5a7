"""Errors between a stub and its supervisor.

StubError
├── ProtocolError    the ring, or what lies beside it, cannot be trusted any more
├── NotUnderstood    a frame says something that the protocol does not know; the ring is sound
├── Gone             the other side is no more
├── Closed           the model has closed a descriptor that leads there
└── ForeignProcess   this is a child that the model forked, not the stub
"""

from __future__ import annotations


class StubError(Exception):
    """Base of this tree."""


class ProtocolError(StubError):
    """The supervisor's words make no sense: it and this stub are of different versions, or one is wrong."""


class NotUnderstood(StubError):
    """A complete frame has a body that this stub does not understand. Only the requests in it fail."""


class Gone(StubError):
    """The supervisor has gone."""


class Closed(StubError):
    """A descriptor that leads to the supervisor does not work any more."""


class ForeignProcess(StubError):
    """A process that the model forked tried to talk to the supervisor."""
