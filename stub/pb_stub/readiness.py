"""Answers the supervisor's question whether the model is ready, beside `execute`."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from . import failure, messages, process
from .channel import Channel, Mailbox
from .errors import ForeignProcess, StubError
from .model import Model


class Readiness:
    """A thread of its own for `is_ready`, in stubs whose model has it: it may take long, and may ask the server.

    It also reads the ring for all while nobody else does.
    """

    def __init__(self, channel: Channel, instance: str, model: Model) -> None:
        self._channel = channel
        self._instance = instance
        self._model = model
        #: Where the questions go.
        self.box: Mailbox[bytes] = SimpleQueue()
        threading.Thread(target=self._run, name="pb_stub is_ready", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                self._answer(self._channel.receive(self.box))
        except ForeignProcess as error:
            process.disown(self._instance, error)
        except StubError as error:
            process.lose(self._instance, error)

    def _answer(self, question: bytes) -> None:
        ready = False
        text = ""
        try:
            answer = self._model.is_ready()
            if isinstance(answer, bool):
                ready = answer
            else:
                text = "is_ready() must return a boolean value"
        except BaseException as error:
            text = failure.describe(error)
        probe = messages.HEADER.unpack_from(question)[5]
        self._channel.publish(messages.ready(self._channel.life, probe, ready, text))
