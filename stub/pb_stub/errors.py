"""What can go wrong between a stub and its supervisor.

StubError
├── ProtocolError    the other side says something that the protocol does not know
├── Gone             the other side is no more
├── Closed           the model has closed a descriptor that leads there
└── ForeignProcess   this is a child that the model forked, not the stub
"""

from __future__ import annotations


class StubError(Exception):
    """Base of this tree."""


class ProtocolError(StubError):
    """The supervisor sent what this stub does not understand: they are of different versions, or one is wrong."""


class Gone(StubError):
    """The supervisor has gone."""


class Closed(StubError):
    """A descriptor that leads to the supervisor does not work any more."""


class ForeignProcess(StubError):
    """A process that the model forked tried to talk to the supervisor."""
