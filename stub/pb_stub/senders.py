"""Requests that are answered one response at a time: RESPONSE frames, their windows, and how such a request ends.

    request ─▶ InferenceResponseSender ─▶ Outlet ─▶ RESPONSE          the model holds the first two
                                            ▲
                                 Senders ───┘       CREDIT, CANCEL    by handle, while the request is open

An Outlet exists from the moment in which the model asks a request for its sender, or `execute` has left it unanswered,
until FINAL. Ordinary requests have none.

Two things keep a `send` from the order that the supervisor wants to see, and both are in `Outlet._publish`: the batch
fails while another thread sends, and then nothing may follow the EXECUTED that says so; and a send that waits for room
learns of such an end by the CREDIT that the supervisor sends for what is out.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any, Iterable, Sequence

from c_python_backend_utils import runtime
from c_python_backend_utils.error import TritonModelException
from c_python_backend_utils.memory import DeviceError
from c_python_backend_utils.request import InferenceRequest
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.sender import RESCHEDULE, InferenceResponseSender, making, sender_of

from . import messages
from .batch import INTERNAL, Answers, Wanted, wanted_of
from .channel import Channel, Mailbox
from .errors import StubError
from .forgotten import Forgotten
from .loans import Loans
from .logs import Logs
from .places import Places
from .pool import Pool, PoolExhausted
from .regions import Regions
from .undeclared import Undeclared

#: Beyond so many handles of cancelled requests those are forgotten that are not open.
_MOST_CANCELLED = 4096

#: Characters of an error text for which there is no memory.
_CUT = 4096

_CLOSED = "Unable to send response. Response sender has been closed."
_NOTHING_SENT = "execute returned no response for this request, and none was sent."
_NOT_ENDED = "the response sender was dropped before it had sent the final flag."

_now = time.monotonic


class Senders:
    """The requests that are open and have been asked for their sender, or left unanswered."""

    def __init__(
        self,
        channel: Channel,
        loans: Loans,
        regions: Regions,
        pool: Pool,
        logs: Logs,
        instance: str,
        decoupled: bool,
        responses: int,
        size: int,
        undeclared: Undeclared | None = None,
    ) -> None:
        self.channel = channel
        self.logs = logs
        self.decoupled = decoupled
        self.window_responses = responses
        self.window_bytes = size
        self.cancelled: set[int] = set()
        #: Requests that the model has forgotten since a batch was begun; none of a decoupled one.
        self.unanswered: set[int] = set()
        self._loans = loans
        self.regions = regions
        self._pool = pool
        self._undeclared = undeclared
        self._instance = instance
        self._outlets: dict[int, Outlet] = {}
        self.forgotten = Forgotten(channel, self._outlets)
        over = Outlet(self, 0, {})
        over.over = True
        #: The sender of all requests whose response was returned, and of requests that failed, where the model had not
        #: asked for a sender.
        self._returned = sender_of(over, closed=True, sends=1)
        self._failed = sender_of(over, closed=True)

    def answers(self) -> Answers:
        return Answers(self.channel, self._loans, self._pool, self._undeclared)

    def can_wait_for_memory(self) -> bool:
        """Whether the supervisor has blocks of ours that will come back."""
        return self._pool.lent()

    def failure(self, text: str) -> str:
        return f"Failed to process the request(s) for model '{self._instance}', message: {text}"

    # What execute makes of the requests of a batch.

    def outlet(self, request: InferenceRequest) -> Outlet | None:
        """Where the responses to an unanswered request go; None for a request that the model has made."""
        handle = request._handle
        if not handle:
            return None
        return self._outlets.setdefault(handle, Outlet(self, handle, wanted_of(request)))

    def claim(self, requests: list[InferenceRequest], responses: Any) -> bool:
        """Make the caller the one that answers the requests for which there is a response, if they have no sender.

        True if these are all of them, and nothing has to be checked any more, which is usual. False says nothing.
        """
        if responses.__class__ is not list or len(responses) != len(requests) or self.decoupled:
            return False
        usual = True
        returned = self._returned
        with making:
            for request, response in zip(requests, responses):
                if request._sender is None and response.__class__ is InferenceResponse:
                    request._sender = returned
                else:
                    usual = False
        return usual

    def unasked(self, request: InferenceRequest) -> bool:
        """Whether a request that was claimed has no sender of its own."""
        return request._sender is self._returned

    def accept(self, request: InferenceRequest) -> str:
        """Take account of a response that was returned for a request that was claimed; why it cannot be, or ""."""
        sender = request._sender
        if sender is not None and sender is not self._returned:
            try:
                sender._answer()
            except TritonModelException as error:
                return str(error)
        return ""

    def refuse(self, request: InferenceRequest) -> bool:
        """Close the sender of a request that was claimed; False if the model has ended the request itself."""
        sender = request._sender
        return sender is None or sender is self._returned or self.close(sender)

    def leave_open(self, request: InferenceRequest) -> bool:
        """Leave a request to its sender; False if it is to be executed again and has ended here."""
        sender = request.get_response_sender()
        if sender._closed:
            return True
        if not sender._release & RESCHEDULE:
            outlet = sender._outlet
            assert isinstance(outlet, Outlet)
            self.forgotten.watch(outlet)
            return True
        self.close(sender)
        return False

    def forgot(self, handles: Sequence[int]) -> str:
        """Why a batch has failed, all of whose requests these are, if the model has forgotten every one; else ""."""
        return self.failure(_NOTHING_SENT) if self.unanswered.issuperset(handles) else ""

    def forget(self, requests: list[InferenceRequest]) -> None:
        """Record the answer to a batch: requests that it has not left open are over."""
        for request in requests:
            if request._handle not in self._outlets:
                self.cancelled.discard(request._handle)

    def fail(self, requests: list[InferenceRequest]) -> None:
        """Close the senders of a batch that has failed. Nothing is sent for it from now on."""
        with making:
            for request in requests:
                if request._sender is None or request._sender is self._returned:
                    request._sender = self._failed
        for request in requests:
            sender = request._sender
            assert sender is not None
            if sender is not self._failed:
                self.close(sender)

    def end(self, handles: Sequence[int]) -> None:
        """End requests without a word to the supervisor, which learns of it otherwise."""
        for handle in handles:
            outlet = self._outlets.get(handle)
            if outlet is not None:
                outlet.end()

    @staticmethod
    def close(sender: InferenceResponseSender) -> bool:
        """Close a sender without a word to the supervisor, which learns of it otherwise; False if it had ended."""
        sender._closed = True
        outlet = sender._outlet
        assert isinstance(outlet, Outlet)
        return outlet.end()

    def blame(self, requests: list[InferenceRequest], text: str) -> None:
        """End with this error the requests of a batch that no thread ends, as one still may."""
        for request in requests:
            outlet = self._outlets.get(request._handle)
            if outlet is not None:
                outlet.why = text

    def fail_each(self, requests: list[InferenceRequest], text: str) -> None:
        """Answer those requests of a batch that are still open, one by one, with an error."""
        for request in requests:
            sender = request._sender
            if sender is not None and not sender._closed:
                sender._closed = True
                outlet = sender._outlet
                assert isinstance(outlet, Outlet)
                outlet.fail(text)

    # Frames of the supervisor.

    def credit(self, handle: int, responses: int, size: int) -> Mailbox[bytes] | None:
        """Take account of responses that have left the server; returns the box of the sender that waits for that."""
        outlet = self._outlets.get(handle)
        return None if outlet is None else outlet.credit(responses, size)

    def give_up(self, handle: int, text: str) -> Mailbox[bytes] | None:
        """End a request with an error; returns the box of the sender that waits for credit."""
        outlet = self._outlets.get(handle)
        return None if outlet is None else outlet.give_up(self.failure(text))

    def cancel(self, handles: Iterable[int]) -> None:
        """Take account of requests whose clients have gone. They may lie ahead, or have been answered already."""
        cancelled = self.cancelled
        cancelled.update(handles)
        if len(cancelled) > _MOST_CANCELLED:
            cancelled.intersection_update(list(self._outlets))

    def gone(self, handle: int) -> bool:
        """Whether the client of a request has gone, as far as the supervisor has said by now."""
        self.channel.look()
        return handle in self.cancelled

    def remove(self, outlet: Outlet) -> None:
        self._outlets.pop(outlet.handle, None)
        self.cancelled.discard(outlet.handle)


class Outlet:
    """One open request, as a sender sees it. It implements runtime.Outlet."""

    __slots__ = (
        "_box",
        "_cancelled",
        "_credit",
        "_gate",
        "_senders",
        "_sent",
        "_waiting",
        "handle",
        "over",
        "patience",
        "touched",
        "wanted",
        "why",
    )

    def __init__(self, senders: Senders, handle: int, wanted: Wanted) -> None:
        self._senders = senders
        self.handle = handle
        self.wanted = wanted
        self.over = False
        self.touched = self.patience = 0.0  # see forgotten
        #: What the client is told if the request is dropped, where that has been logged already.
        self.why = ""
        self._cancelled = False  # when it was over
        self._gate = threading.Lock()  # between publishing and the end
        # Responses and bytes, counted by the thread that sends and by the one that reads.
        self._sent = (0, 0)
        self._credit = (0, 0)
        self._box: Mailbox[bytes] | None = None
        self._waiting = False

    @property
    def decoupled(self) -> bool:
        return self._senders.decoupled

    def is_cancelled(self) -> bool:
        if self.over:
            return self._cancelled
        self.touched = _now()
        senders = self._senders
        senders.channel.look()
        return self.handle in senders.cancelled

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Send a response, FINAL, or both. If the last response cannot be sent, the client gets an error."""
        self.touched = _now()
        try:
            if response is None:
                self._publish(messages.final(self._senders.channel.life, self.handle), True)
            else:
                self._send(response, final)
        except (PoolExhausted, DeviceError) as error:
            if final:
                self.fail(self._senders.failure(str(error)))
            raise TritonModelException(str(error)) from None
        except StubError as error:
            raise TritonModelException(str(error)) from error

    def _send(self, response: InferenceResponse, final: bool) -> None:
        senders = self._senders
        if senders.decoupled and not final:
            self._await_room()
        lent = True
        while True:
            answers = senders.answers()
            try:
                answers.response(self.handle, response, self.wanted, final)
                size = answers.size()
                frame = answers.pack_response(self.handle)
                self._publish(frame, final)
                break
            except PoolExhausted:
                answers.withdraw()
                # With nothing lent one more try decides: the last of it may have come back since this one.
                if not senders.decoupled or not lent:
                    raise
                lent = senders.can_wait_for_memory()
                if not lent:
                    continue
            except BaseException:
                answers.withdraw()
                raise
            senders.channel.pause()  # clients that read give memory back, without a bell
        responses, total = self._sent
        self._sent = responses + 1, total + size

    def _publish(self, frame: bytes, final: bool) -> None:
        if final and self._senders.regions.alive:
            self._senders.regions.freeze()
        with self._gate:
            if self.over:
                raise TritonModelException(_CLOSED)
            self._senders.channel.publish(frame)
            if final:
                self._end()

    def _await_room(self) -> None:
        """Wait until another response may be sent."""
        while self._full():
            if self._box is None:
                self._box = SimpleQueue()
            self._waiting = True  # before the last look: the thread that credits looks after it has counted
            try:
                if self._full():
                    self._senders.channel.receive(self._box)
            finally:
                self._waiting = False
            if self.over:
                raise TritonModelException(_CLOSED)

    def _full(self) -> bool:
        responses, size = self._sent
        credit_responses, credit_size = self._credit
        senders = self._senders
        return responses - credit_responses >= senders.window_responses or size - credit_size >= senders.window_bytes

    def credit(self, responses: int, size: int) -> Mailbox[bytes] | None:
        """Count responses that have left the server. For the thread that reads."""
        credit_responses, credit_size = self._credit
        self._credit = credit_responses + responses, credit_size + size
        return self._box if self._waiting else None

    def give_up(self, text: str) -> Mailbox[bytes] | None:
        """End the request with an error, for the thread that reads; a sender that waits for credit is woken."""
        try:
            self.fail(text)
        except StubError:
            pass  # the main thread finds out by itself
        return self._box if self._waiting else None

    def end(self) -> bool:
        """End the request here, unless it has ended; a concurrent send is refused."""
        with self._gate:
            if self.over:
                return False
            self._end(keep=self._waiting)
            return True

    def _end(self, keep: bool = False) -> None:
        senders = self._senders
        self._cancelled = self.handle in senders.cancelled
        self.over = True
        if isinstance(self.wanted, Places):  # a thread of the model may be sending
            self.wanted.end()
        if not keep:  # else the thread that waits for CREDIT would wait for ever
            senders.remove(self)

    def fail(self, text: str, complain: bool = False) -> None:
        """End the request with an error, which goes into the log too if no client hears of it."""
        senders = self._senders
        with self._gate:
            if self.over:
                return
            if complain:  # before the request is over, so that the supervisor can name it
                senders.logs.complain(runtime.ERROR, text, self.handle >> 32)
            try:
                self._publish_error(text)
            except PoolExhausted:  # for a body that is so long
                self._publish_error(text[:_CUT])
            finally:
                self._end()

    def _publish_error(self, text: str) -> None:
        answers = self._senders.answers()
        answers.error(self.handle, INTERNAL, text)
        frame = answers.pack_response(self.handle)
        if self._senders.regions.alive:
            self._senders.regions.freeze()
        try:
            self._senders.channel.publish(frame)
        except BaseException:
            answers.withdraw()
            raise

    def dropped(self, sends: int) -> None:
        """End the request of a sender that is gone. It is called anywhere, and so are `publish` and the log."""
        senders = self._senders
        if self.over or senders.channel.foreign:
            return
        try:
            if sends and not senders.decoupled:
                # It has sent the one response that it may send: the client need not learn of the slip.
                self._publish(messages.final(senders.channel.life, self.handle), True)
            elif self.why:
                self.fail(self.why)
            elif senders.decoupled:
                self.fail(senders.failure(_NOT_ENDED), complain=True)
            else:
                senders.unanswered.add(self.handle)
                self.fail(senders.failure(_NOTHING_SENT), complain=True)
        except StubError:
            pass  # the main thread finds out by itself
