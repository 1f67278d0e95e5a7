"""Names of tensors, each sent once and then referenced by its index."""

from __future__ import annotations

import threading

from . import layout, messages
from .channel import Channel
from .errors import NotUnderstood


class TooManyNames(Exception):
    """The model has used the maximum number of names. The text is for the model."""


class Names:
    """Both tables of names. Initially they are equal: the config's inputs, then its outputs."""

    def __init__(self, channel: Channel, names: list[str], inputs: int, outputs: int) -> None:
        self._channel = channel
        self._mu = threading.Lock()
        #: Names by the supervisor's index.
        self.received = list(names)
        #: Indices by name, for sending. If a name is an input and an output, both indices mean it.
        self.sent: dict[str, int] = {name: index for index, name in enumerate(names)}
        self._count = len(names)
        self._bytes = sum(len(name.encode()) for name in names)
        #: The config's outputs with their indices, for requests that name no outputs.
        self.outputs: dict[str, int] = {name: self.sent[name] for name in names[inputs : inputs + outputs]}

    def learn(self, frame: bytes) -> None:
        """Decode a NAME frame.

        After a bad name, all later names are rejected: indices never shift.
        """
        index = messages.HEADER.unpack_from(frame)[5]
        if index != len(self.received):
            raise NotUnderstood(f"name has index {index}, want {len(self.received)}")
        if messages.flags_of(frame) & messages.SPILLED:
            raise NotUnderstood(f"name {index} could not be read")
        try:
            self.received.append(messages.body_of(frame).decode())
        except UnicodeDecodeError as error:
            raise NotUnderstood(f"name {index}: {error}") from error

    def index(self, name: str) -> int:
        """Return the index of a name to send. A new name is first sent to the supervisor."""
        index = self.sent.get(name)
        if index is None:
            with self._mu:
                index = self.sent.get(name)
                if index is None:
                    index = self._introduce(name)
        return index

    def _introduce(self, name: str) -> int:
        size = len(name.encode())
        if self._count == layout.MAX_NAMES or self._bytes + size > layout.MAX_NAME_BYTES:
            raise TooManyNames(f"the model has used {self._count} names of tensors of {self._bytes} bytes together")
        index = self._count
        self._channel.publish(messages.name(self._channel.life, index, name))
        self._count += 1
        self._bytes += size
        self.sent[name] = index
        return index
