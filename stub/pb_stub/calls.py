"""Calls of a model to its server other than inferences: model control and custom metrics.

A call is a CALL frame, answered by RESULT when it is complete. Any thread may make calls, and many
may be in progress. A change of a metric is a METRIC frame without an answer. Frames keep their
order, so a thread reads its own changes.
"""

from __future__ import annotations

import sys
from itertools import count
from queue import SimpleQueue
from types import FrameType
from typing import Any

from c_python_backend_utils.binding import Text
from c_python_backend_utils.runtime import Refused

from . import layout, messages
from .channel import Channel, Mailbox
from .errors import ForeignProcess, NotUnderstood
from .pool import PoolExhausted

_CLOSED = "this is not possible before __init__, while the model completes its config"
_FOREIGN = "this is not possible in a process that the model forked"
_INTERRUPTS = (
    "this is not possible in a signal handler or destructor that interrupts its thread's call to the server"
)


class Calls:
    """The calls of one stub. They are rejected before `open`."""

    def __init__(self, channel: Channel, instance: str) -> None:
        self._channel = channel
        self._instance = instance
        self._open = False
        self._keeping = False
        self._boxes: dict[int, Mailbox[bytes]] = {}
        # next() of a counter is atomic.
        self._calls = count(1)
        self._families = count(1)
        self._metrics = count(1)

    def open(self) -> None:
        """Allow calls: the supervisor is listening."""
        self._open = True

    def keep(self) -> None:
        """Stop dropping families.

        `finalize` has returned; remaining families stay in the server.
        """
        self._keeping = True

    def route(self, frame: bytes) -> Mailbox[bytes] | None:
        """Return the mailbox that waits for a RESULT; None if an exception ended the wait."""
        return self._boxes.get(messages.HEADER.unpack_from(frame)[5])

    def _call(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Make a call and wait for its result."""
        channel = self._channel
        if not self._open:
            raise Refused(_CLOSED)
        if channel.foreign:
            raise Refused(_FOREIGN)
        if _interrupts(sys._getframe()):
            raise Refused(_INTERRUPTS)
        number = next(self._calls)
        frame = messages.call(channel.life, number, operation, **fields)
        if len(frame) > layout.MAX_SPILLED:
            raise Refused(f"the call has {len(frame)} bytes with its files, at most {layout.MAX_SPILLED} are allowed")
        box: Mailbox[bytes] = SimpleQueue()
        self._boxes[number] = box
        try:
            channel.publish(frame)
            del frame
            result = messages.map_of(channel.receive(box))
        except PoolExhausted as error:
            raise Refused(str(error)) from None
        except ForeignProcess:
            raise Refused(_FOREIGN) from None
        except NotUnderstood as error:
            raise Refused(f"the server's answer is not understood: {error}") from None
        finally:
            del self._boxes[number]
        text = result.get("error")
        if not isinstance(text, str):
            raise Refused("the server's answer is not understood: it has no text of an error")
        if text:
            raise Refused(text)
        return result

    # See runtime.Runtime.

    def instance(self) -> str:
        return self._instance

    def load_model(self, name: Text, config: Text, files: dict[Text, bytes]) -> None:
        named = {_text(path): content for path, content in files.items()}
        self._call("load", model=_text(name), config=_text(config), files=named)

    def unload_model(self, name: Text, dependents: bool) -> None:
        self._call("unload", model=_text(name), dependents=dependents)

    def is_model_ready(self, name: Text, version: Text) -> bool:
        return bool(self._call("ready", model=_text(name), version=_text(version)).get("ready"))

    def new_family(self, name: Text, description: Text, kind: int) -> int:
        family = next(self._families)
        self._call("new_family", family=family, name=_text(name), description=_text(description), kind=kind)
        return family

    def drop_family(self, family: int) -> None:
        channel = self._channel
        if not self._keeping and not channel.foreign:
            channel.publish(messages.call(channel.life, 0, "drop_family", family=family))

    def new_metric(self, family: int, labels: list[tuple[str, str]], buckets: list[float]) -> int:
        metric = next(self._metrics)
        self._call("new_metric", family=family, metric=metric, labels=labels, buckets=buckets)
        return metric

    def change_metric(self, metric: int, operation: int, value: float) -> None:
        channel = self._channel
        try:
            channel.publish(messages.metric(channel.life, metric, operation, value))
        except ForeignProcess:
            raise Refused(_FOREIGN) from None

    def metric_value(self, metric: int) -> float:
        value = self._call("value", metric=metric).get("value")
        if not isinstance(value, (int, float)):
            raise Refused(f"the server's answer is not understood: the value is {type(value).__name__}")
        return float(value)


def _text(text: Text) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


#: Code in which a thread reads, writes or yields: an interrupt that calls from there would wait for
#: itself.
_TALKING = frozenset(
    function.__code__
    for function in (
        Channel.receive,
        Channel.look,
        Channel.listen,
        Channel.unlisten,
        Channel.heard,
        Channel.publish,
        Channel.post,
        Channel.give_back,
        Channel.release_tickets,
    )
)


def _interrupts(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _TALKING:
            return True
        frame = frame.f_back
    return False
