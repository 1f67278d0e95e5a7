"""Batches: executed by the model, and always answered.

    execute returned      the requests are
    a list                answered, each by its response, or by its own error
    None                  left open, for their senders
    a coroutine           awaited here, or left open and answered when it ends
    an exception          all answered with it

The fault of a response is only reported to its client. The frame that answers a batch is encoded
after the model's objects are gone, so that it carries the tickets of the batch's loans.
"""

from __future__ import annotations

import gc
import struct
import time
from typing import TYPE_CHECKING, Any, Sequence

from c_python_backend_utils import runtime
from c_python_backend_utils.error import TritonModelException
from c_python_backend_utils.memory import DeviceError
from c_python_backend_utils.request import InferenceRequest
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.sender import FINAL, RESCHEDULE

from . import failure, messages
from .batch import INTERNAL, Answers, Reader, wanted_of
from .errors import ForeignProcess, NotUnderstood
from .model import MissingExecute, Model
from .pool import Pool, PoolExhausted

if TYPE_CHECKING:
    from .channel import Channel
    from .handlers import Handlers
    from .inferences import Inferences
    from .loans import Loans
    from .logs import Logs
    from .regions import Regions
    from .senders import Senders
    from .undeclared import Undeclared

_now = time.monotonic_ns
_unpack_header = messages.HEADER.unpack_from

#: Reserved bytes for the text of an error.
_CUT = 16384


class Refused(Exception):
    """The result of `execute` does not answer its batch. The text is Triton's."""


class Execution:
    """Runs batches, one at a time, in the thread of the main loop."""

    def __init__(
        self,
        channel: Channel,
        handlers: Handlers,
        logs: Logs,
        loans: Loans,
        regions: Regions,
        pool: Pool,
        reader: Reader,
        senders: Senders,
        inferences: Inferences,
        undeclared: Undeclared,
        instance: str,
        decoupled: bool,
        overlap: int,
    ) -> None:
        self._channel = channel
        self._handlers = handlers
        self._logs = logs
        self._loans = loans
        self._regions = regions
        self._pool = pool
        self._reader = reader
        self._senders = senders
        self._inferences = inferences
        self._undeclared = undeclared
        self._instance = instance
        self._decoupled = decoupled
        self._overlap = overlap  # how many calls of an async execute may overlap

    def run(self, model: Model, frame: bytes) -> None:
        """Run a batch. Every request is answered, regardless of the model's behaviour."""
        channel = self._channel
        channel.executing = True
        batch = _unpack_header(frame)[5]
        wrong = ""
        try:
            requests = self._reader.read(frame)
        except NotUnderstood as error:
            wrong = str(error)
        if wrong:  # loans already made ended with the exception
            channel.executing = False
            wrong = self._senders.failure(f"the server's message is not understood: {wrong}")
            complain(self._logs, wrong, batch)
            publish_failed(self._channel, batch, _now(), _now(), wrong)
            return
        del frame  # the requests keep it as long as they need it
        senders = self._senders
        senders.unanswered.clear()
        count = len(requests)
        mine = requests[:]  # the model may modify its list
        self._inferences.batch = batch
        answers = Answers(channel, self._loans, self._pool, self._undeclared)
        text = trace = place = ""
        failed = False
        start = end = _now()
        try:
            try:
                if self._handlers.pending is not None:
                    place = model.place_of_execute()
                    self._handlers.leave()
                result = model.execute(requests)
                if result is not None and result.__class__ is not list:
                    result = self._awaited(model, batch, result, mine, answers)
            finally:
                end = _now()
                self._inferences.batch = 0
                del requests
            self._answer(answers, batch, result, mine)
            del result
        except (MissingExecute, Refused, PoolExhausted) as error:
            text = str(error)
            # Otherwise the response tensors, and their device memory, would outlive the answer.
            result = None  # noqa: F841
        except ForeignProcess:
            raise
        except BaseException as error:
            text = failure.describe(error, place)
            trace = failure.trace(error)
            failed = True
        if channel._foreign:
            leave_children(self._channel)
        if text:
            senders.fail(mine)
        if senders.cancelled:
            senders.forget(mine)
        del mine  # deletes unanswered requests that the model does not reference
        if failed:
            # An exception referenced by a local variable of its own frame keeps the requests alive,
            # and their loans. In Python 3.14, generation 1 alone is an increment of old objects,
            # which may omit young ones.
            gc.collect(0)
            gc.collect(1)
        if self._regions.alive:  # the model keeps inputs, which their clients are about to get back
            self._regions.freeze()
        # From here on, remaining tickets of this batch are sent separately.
        channel.executing = False
        if not text:
            lost = senders.forgot(answers.left_open) if 0 < len(answers.left_open) == count else ""
            try:
                if lost:  # clients and log already have it; this only counts it
                    publish_failed(self._channel, batch, start, end, lost)
                else:
                    channel.publish(answers.pack(batch, start, end))
                return
            except PoolExhausted as error:  # the frame is long, and there is no memory for its body
                text = str(error)
                senders.end(answers.left_open)
            except (struct.error, IndexError) as error:
                text = f"a response does not fit into a message: {error}"
                senders.end(answers.left_open)
        self._fail(answers, batch, start, end, text, trace)

    def skip(self, frame: bytes) -> None:
        """Skip a withdrawn batch and report it. Its loans are returned after the report."""
        channel = self._channel
        channel.executing = True
        try:
            self._reader.read(frame)  # creates the loans, whose end returns their tickets
        except NotUnderstood as error:
            complain(self._logs, str(error), messages.HEADER.unpack_from(frame)[5])
        channel.executing = False
        channel.publish(messages.executed_skipped(channel.life, messages.HEADER.unpack_from(frame)[5]))

    def _awaited(self, model: Model, number: int, result: Any, mine: list[InferenceRequest], answers: Answers) -> Any:
        """Handle a coroutine; returns the argument for `_answer`.

        Other results are returned unchanged.
        """
        from .coroutines import is_coroutine  # imports asyncio

        if not is_coroutine(result):
            return result
        loop = model.event_loop()
        if not self._decoupled and self._overlap <= 1:
            self._inferences.awaited = number
            try:
                return loop.run(number, result)
            finally:
                self._inferences.awaited = 0
        batch = mine[:]
        self._leave_open(mine, answers)
        most = None if self._decoupled else self._overlap
        loop.start(number, result, lambda value, error: self._ended(number, batch, value, error), most)
        return None

    def _ended(self, number: int, batch: list[InferenceRequest], result: Any, error: BaseException | None) -> None:
        """Handle the end of a coroutine whose batch was left open."""
        senders = self._senders
        try:
            if error is not None:
                complain(self._logs, failure.trace(error) or failure.describe(error), number)
                raise Refused(failure.describe(error))
            if result is None:
                return
            self._check(result, batch)
        except Refused as refusal:
            text = senders.failure(str(refusal))
            if error is None:
                complain(self._logs, text, number)
            if error is None and self._decoupled:
                senders.blame(batch, text)  # requests answered elsewhere are not affected
            else:
                senders.fail_each(batch, text)
            return
        for request, response in zip(batch, result):
            if response is None:
                continue
            wrong = self._wrong(request, response)
            if not wrong:
                try:
                    request.get_response_sender().send(response, FINAL)
                    continue
                except TritonModelException as refused:
                    wrong = str(refused)
            text = senders.failure(wrong)
            complain(self._logs, text, number)
            senders.fail_each([request], text)

    def _answer(self, answers: Answers, number: int, result: Any, mine: list[InferenceRequest]) -> None:
        """Check and collect the result of execute; unanswered requests stay open.

        The fault of a response is only reported to its client; in a batch of one, the batch fails.
        """
        if result is None:
            self._leave_open(mine, answers)
            return
        senders = self._senders
        if not senders.claim(mine, result):
            self._check(result, mine)
        elif answers.gather(mine, result):
            return
        elif len(mine) == 1:
            try:
                answers.response(mine[0]._handle, result[0], wanted_of(mine[0]))
            except DeviceError as error:  # not an exception of the model
                raise Refused(str(error)) from error
            return
        for request, response in zip(mine, result):
            if response is None:
                self._leave_open((request,), answers)
                continue
            wrong = ""
            usual = response.__class__ is InferenceResponse and senders.unasked(request)
            if not usual:
                wrong = self._wrong(request, response) or senders.accept(request)
            if not wrong:
                try:
                    answers.response(request._handle, response, wanted_of(request))
                    if not usual:
                        senders.refuse(request)
                    continue
                except (PoolExhausted, DeviceError) as error:
                    wrong = str(error)
            if len(mine) == 1:
                raise Refused(wrong)
            text = senders.failure(wrong)
            complain(self._logs, text, number)
            if senders.refuse(request):
                answers.error(request._handle, INTERNAL, text)

    def _leave_open(self, requests: Sequence[InferenceRequest], answers: Answers) -> None:
        for request in requests:
            if self._senders.leave_open(request):
                answers.left_open = (*answers.left_open, request._handle)
            else:
                answers.reschedule(request._handle)

    def _check(self, result: Any, mine: list[InferenceRequest]) -> None:
        """Reject a result that does not answer a batch."""
        if self._decoupled:
            raise Refused(
                f"Python model '{self._instance}' is using the decoupled mode and the execute function "
                "must return None."
            )
        if not isinstance(result, list):
            raise Refused(f"Expected a list in the execute return, found type '{type(result)}'.")
        if len(result) != len(mine):
            raise Refused(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(mine)}, and InferenceResponse(s) size is:{len(result)}\n"
            )

    def _wrong(self, request: InferenceRequest, response: Any) -> str:
        """Return the fault of an element in the result of execute, or ""."""
        sender = request._sender
        if sender is not None and sender._release & RESCHEDULE:
            return (
                "Expected a None object in the execute function return list for reschduled request, "
                f"found type '{type(response)}'."
            )
        if not isinstance(response, InferenceResponse):
            return (
                "Expected an 'InferenceResponse' object in the execute function return list, "
                f"found type '{type(response)}'."
            )
        return ""

    def _fail(self, answers: Answers, batch: int, start: int, end: int, text: str, trace: str) -> None:
        """Answer a whole batch with an error."""
        answers.withdraw()
        text = self._senders.failure(text)
        complain(self._logs, text, batch, trace)
        publish_failed(self._channel, batch, start, end, text)


def publish_failed(channel: Channel, batch: int, start: int, end: int, text: str) -> None:
    """Answer a whole batch with an error; a long text is truncated."""
    raw = text.encode("utf-8", "backslashreplace")
    try:
        channel.publish(messages.executed_failed(channel.life, batch, start, end, channel.take_tickets(), raw))
    except PoolExhausted:
        raw = raw[:_CUT].decode("utf-8", "ignore").encode()
        channel.publish(messages.executed_failed(channel.life, batch, start, end, channel.take_tickets(), raw))


def complain(logs: Logs, text: str, batch: int = 0, trace: str = "") -> None:
    """Log an error and its origin, optionally for a batch."""
    logs.complain(runtime.ERROR, f"{text}\n{trace}" if trace else text, batch, 1)


def leave_children(channel: Channel) -> None:
    """End a process that the model forked, and that returned into the stub's code."""
    if channel.foreign:
        raise ForeignProcess("a process that the model forked returned from the model's code")
