"""Answers the supervisor's readiness checks, concurrently with `execute`."""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue

from . import failure, messages
from .channel import Channel, Mailbox
from .errors import StubError
from .model import Model
from .service import Service

#: An execution longer than one to two times this, in seconds, is not short: frames are read
#: meanwhile.
_LOOK = 0.01


class Readiness:
    """A separate thread for `is_ready`, if the model has it: it may block, and may call the server.

    While the main thread executes, no thread reads the ring, so a check would wait. Another reader
    would slow down short executions, because frames would pass between threads. So this thread
    looks from time to time, and requests reading during an execution that is not short.
    """

    def __init__(self, channel: Channel, instance: str, model: Model, service: Service) -> None:
        self._channel = channel
        self._instance = instance
        self._model = model
        self._service = service
        #: Incoming checks. An empty one wakes the thread.
        self.box: Mailbox[bytes] = SimpleQueue()
        #: The model is about to be finalized: no more checks are run or answered.
        self.over = False
        self._count = 0  # of executions
        self._executing = 0  # number of the running execution, or 0
        self._asleep = True  # until something is put into the box
        self._reads = False
        threading.Thread(target=self._run, name="pb_stub is_ready", daemon=True).start()

    def begin(self) -> None:
        """Record that the main thread starts to execute."""
        self._count += 1
        self._executing = self._count
        if self._asleep:
            self._asleep = False
            self.box.put(b"")

    def end(self) -> None:
        """Record that the main thread has executed, and reads the ring from now on."""
        self._executing = 0
        if self._reads:
            self._reads = False
            self._service.enough(self)

    def close(self) -> None:
        """End with the instance."""
        self.over = True
        self.box.put(b"")

    def _run(self) -> None:
        try:
            while True:
                self._answer(self._next())
        except StubError as error:
            self._channel.lose(self._instance, error)

    def _next(self) -> bytes:
        """Wait for a check."""
        seen = 0
        while True:
            if self.over:
                sys.exit()  # ends the thread
            try:
                question = self.box.get(timeout=None if self._asleep else _LOOK)
                if question:
                    return question
            except Empty:
                pass
            now = self._executing
            if now and now == seen:
                self._reads = True
                self._service.need(self)
                if self._executing != now:  # end may have been called before
                    self._service.enough(self)
            if now == seen:
                self._asleep = True
                if self._executing not in (0, now):  # begin may have been called before
                    self._asleep = False
            seen = now

    def _answer(self, question: bytes) -> None:
        if self.over:
            return
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
