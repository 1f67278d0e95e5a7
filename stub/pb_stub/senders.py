"""Requests answered one response at a time: RESPONSE frames, flow control, and the end of requests.

    request ─▶ InferenceResponseSender ─▶ Outlet ─▶ RESPONSE          the model holds the first two
                                            ▲
                                 Senders ───┘       CREDIT, CANCEL    by handle, while the request is open

An Outlet exists from the time the model requests the sender, or `execute` leaves the request
unanswered, until FINAL. Ordinary requests have none.

Two cases complicate the order that the supervisor expects, and `Outlet._publish` handles both: the
batch fails while another thread sends, in which case nothing may follow the EXECUTED that reports
this; and a send that waits for room learns of such an end by the CREDIT that the supervisor sends
for pending responses.
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

from . import accelerator, messages
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

#: Above this number of handles of cancelled requests, those of closed requests are discarded.
_MOST_CANCELLED = 4096

#: Characters of an error text if there is no memory for it.
_CUT = 4096

_CLOSED = "Unable to send response. Response sender has been closed."
_NOTHING_SENT = "execute returned no response for this request, and none was sent."
_NOT_ENDED = "the response sender was dropped before it had sent the final flag."

_now = time.monotonic


class Senders:
    """The open requests whose sender was requested, or that were left unanswered."""

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
        #: Requests that the model dropped since a batch was started; none of a decoupled model.
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
        #: The sender of requests whose response was returned, and of failed requests, if the model
        #: had not requested a sender.
        self._returned = sender_of(over, closed=True, sends=1)
        self._failed = sender_of(over, closed=True)

    def some_are_open(self) -> bool:
        """Return whether a request is open."""
        return bool(self._outlets)

    def answers(self) -> Answers:
        return Answers(self.channel, self._loans, self._pool, self._undeclared)

    def can_wait_for_memory(self) -> bool:
        """Return whether the supervisor has blocks of ours that will be returned."""
        return self._pool.lent()

    def failure(self, text: str) -> str:
        return f"Failed to process the request(s) for model '{self._instance}', message: {text}"

    # Handling of the requests of a batch.

    def outlet(self, request: InferenceRequest) -> Outlet | None:
        """Return the outlet of an unanswered request; None for BLS requests."""
        handle = request._handle
        if not handle:
            return None
        return self._outlets.setdefault(handle, Outlet(self, handle, wanted_of(request)))

    def claim(self, requests: list[InferenceRequest], responses: Any) -> bool:
        """Make the caller answer the requests that have a response and no sender.

        True if these are all of them and no further check is needed, which is the common case.
        """
        if responses.__class__ is not list or len(responses) != len(requests) or self.decoupled:
            return False
        usual = True
        returned = self._returned
        fast = accelerator.module
        with making:
            if fast is not None:
                claimed: bool | None = fast.claim(requests, responses, returned)
                if claimed is not None:
                    return claimed
            for request, response in zip(requests, responses):
                if request._sender is None and response.__class__ is InferenceResponse:
                    request._sender = returned
                else:
                    usual = False
        return usual

    def unasked(self, request: InferenceRequest) -> bool:
        """Return whether a claimed request has no sender of its own."""
        return request._sender is self._returned

    def accept(self, request: InferenceRequest) -> str:
        """Record the response returned for a claimed request. Returns an error text, or ""."""
        sender = request._sender
        if sender is not None and sender is not self._returned:
            try:
                sender._answer()
            except TritonModelException as error:
                return str(error)
        return ""

    def refuse(self, request: InferenceRequest) -> bool:
        """Close the sender of a claimed request; False if the model has ended the request."""
        sender = request._sender
        return sender is None or sender is self._returned or self.close(sender)

    def leave_open(self, request: InferenceRequest) -> bool:
        """Leave a request to its sender; False if it is rescheduled and has ended here."""
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
        """Return why a batch of these requests has failed if the model has dropped all; else ""."""
        return self.failure(_NOTHING_SENT) if self.unanswered.issuperset(handles) else ""

    def forget(self, requests: list[InferenceRequest]) -> None:
        """Record the answer to a batch: its requests are complete, unless left open."""
        for request in requests:
            if request._handle not in self._outlets:
                self.cancelled.discard(request._handle)

    def fail(self, requests: list[InferenceRequest]) -> None:
        """Close the senders of a failed batch. Nothing is sent for it from now on."""
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
        """End requests without notifying the supervisor, which is notified otherwise."""
        for handle in handles:
            outlet = self._outlets.get(handle)
            if outlet is not None:
                outlet.end()

    @staticmethod
    def close(sender: InferenceResponseSender) -> bool:
        """Close a sender without notifying the supervisor; False if it was closed."""
        sender._closed = True
        outlet = sender._outlet
        assert isinstance(outlet, Outlet)
        return outlet.end()

    def blame(self, requests: list[InferenceRequest], text: str) -> None:
        """End requests of a batch with this error, except those that a thread may still end."""
        for request in requests:
            outlet = self._outlets.get(request._handle)
            if outlet is not None:
                outlet.why = text

    def fail_each(self, requests: list[InferenceRequest], text: str) -> None:
        """Answer each request of a batch that is still open with an error."""
        for request in requests:
            sender = request._sender
            if sender is not None and not sender._closed:
                sender._closed = True
                outlet = sender._outlet
                assert isinstance(outlet, Outlet)
                outlet.fail(text)

    # Frames from the supervisor.

    def credit(self, handle: int, responses: int, size: int) -> Mailbox[bytes] | None:
        """Record responses that have left the server; returns the box of a waiting sender."""
        outlet = self._outlets.get(handle)
        return None if outlet is None else outlet.credit(responses, size)

    def give_up(self, handle: int, text: str) -> Mailbox[bytes] | None:
        """End a request with an error; returns the box of a sender that waits for credit."""
        outlet = self._outlets.get(handle)
        return None if outlet is None else outlet.give_up(self.failure(text))

    def cancel(self, handles: Iterable[int]) -> None:
        """Record requests whose clients have gone away. They may be queued, or complete."""
        cancelled = self.cancelled
        cancelled.update(handles)
        if len(cancelled) > _MOST_CANCELLED:
            cancelled.intersection_update(list(self._outlets))

    def gone(self, handle: int) -> bool:
        """Return whether the client of a request has gone away, as far as known."""
        self.channel.look()
        return handle in self.cancelled

    def remove(self, outlet: Outlet) -> None:
        self._outlets.pop(outlet.handle, None)
        self.cancelled.discard(outlet.handle)


class Outlet:
    """One open request, as its sender sees it. Implements runtime.Outlet."""

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
        #: The error for the client if the request is dropped, if it was already logged.
        self.why = ""
        self._cancelled = False  # the state at completion
        self._gate = threading.Lock()  # between publishing and the end
        # Responses and bytes, counted by the sending and the reading thread.
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
        """Send a response, FINAL, or both. If the last response fails, the client gets an error."""
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
        if senders.decoupled and not final and self._full():
            self._await_room()
        lent = True
        while True:
            answers = senders.answers()
            try:
                answers.gather_one(self.handle, response, self.wanted, final)
                size = answers.size()
                frame = answers.pack_response(self.handle)
                self._publish(frame, final)
                break
            except PoolExhausted:
                answers.withdraw()
                # With nothing lent, one more try decides: the last loan may have been returned
                # since this one.
                if not senders.decoupled or not lent:
                    raise
                lent = senders.can_wait_for_memory()
                if not lent:
                    continue
            except BaseException:
                answers.withdraw()
                raise
            senders.channel.pause()  # clients that read release memory, without a bell
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
            self._waiting = True  # before the last check: the crediting thread checks it after counting
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
        """Count responses that have left the server. For the reading thread."""
        credit_responses, credit_size = self._credit
        self._credit = credit_responses + responses, credit_size + size
        return self._box if self._waiting else None

    def give_up(self, text: str) -> Mailbox[bytes] | None:
        """End the request with an error and wake a waiting sender. For the reading thread."""
        try:
            self.fail(text)
        except StubError:
            pass  # the main thread notices the error itself
        return self._box if self._waiting else None

    def end(self) -> bool:
        """End the request, unless it has ended; a concurrent send is rejected."""
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
        if not keep:  # otherwise the thread that waits for CREDIT would wait forever
            senders.remove(self)

    def fail(self, text: str, complain: bool = False) -> None:
        """End the request with an error, which is also logged if no client receives it."""
        senders = self._senders
        with self._gate:
            if self.over:
                return
            if complain:  # before the request ends, so that the supervisor can name it
                senders.logs.complain(runtime.ERROR, text, self.handle >> 32)
            try:
                self._publish_error(text)
            except PoolExhausted:  # for a body of this length
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
        """End the request of a deleted sender. Called anywhere, as are `publish` and the log."""
        senders = self._senders
        if self.over or senders.channel.foreign:
            return
        try:
            if sends and not senders.decoupled:
                # It has sent its only response: the client does not need to know of the mistake.
                self._publish(messages.final(senders.channel.life, self.handle), True)
            elif self.why:
                self.fail(self.why)
            elif senders.decoupled:
                self.fail(senders.failure(_NOT_ENDED), complain=True)
            else:
                senders.unanswered.add(self.handle)
                self.fail(senders.failure(_NOTHING_SENT), complain=True)
        except StubError:
            pass  # the main thread notices the error itself
