"""The main loop of a stub: from AUTO_COMPLETE or INITIALIZE to FINALIZED."""

from __future__ import annotations

import errno
import gc
import os
import struct
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, Sequence

import triton_python_backend_utils  # noqa: F401  # the model's path may lead to another one, that a package installed
from c_python_backend_utils import runtime
from c_python_backend_utils.error import TritonModelException
from c_python_backend_utils.memory import DeviceError
from c_python_backend_utils.request import InferenceRequest
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.sender import FINAL, RESCHEDULE

from . import failure, layout, messages, process
from .batch import INTERNAL, Answers, Reader, wanted_of
from .calls import Calls
from .channel import Channel, Mailbox
from .errors import ForeignProcess, NotUnderstood
from .handlers import Handlers
from .inferences import Inferences
from .loans import Loans
from .logs import Logs
from .messages import AutoComplete, Initialize, Settings
from .model import CALLERS, MissingExecute, Model, NotCompleted
from .names import Names
from .pool import Pool, PoolExhausted
from .process import Descriptors
from .readiness import Readiness
from .regions import Regions
from .senders import Senders
from .service import Service
from .spin import Spin
from .undeclared import Undeclared
from .windows import limits

if TYPE_CHECKING:
    from .ondevice import DevicePool, OnDevice

_now = time.monotonic_ns


class Refused(Exception):
    """What `execute` returned is no answer to its batch. The text is Triton's."""


class Loop:
    """One life of a stub, after HELLO."""

    def __init__(self, instance: str, channel: Channel, handlers: Handlers, fds: Descriptors, root: str) -> None:
        self._instance = instance
        self._channel = channel
        self._handlers = handlers
        handlers.open.update(CALLERS)
        self._fds = fds
        self._root = root
        self._box: Mailbox[bytes] = SimpleQueue()
        self._logs = Logs(channel)
        self._calls = Calls(channel, instance)
        self._model: Model | None = None  # once it is imported
        self._told = False  # INITIALIZE has been understood
        self._devices: dict[int, OnDevice] = {}  # one, once it is needed
        self._readiness: Readiness | None = None  # of a model that has is_ready
        self._loans = Loans(channel, fds.requests)
        self._regions = Regions(channel, self._loans.pagemap, fds.regions)
        self._service = Service(channel, instance)
        self._inferences = Inferences(channel, self._loans, self._service, instance)
        channel.route = self._route
        channel.unspill = self._unspill

    def run(self) -> int:
        """Serve until FINALIZE; returns the exit code."""
        channel = self._channel
        frame = self._expect(messages.INITIALIZE, messages.AUTO_COMPLETE, messages.FINALIZE)
        if messages.kind_of(frame) == messages.AUTO_COMPLETE:
            if not self._complete(frame):
                return process.EXIT_NOT_STARTED
            frame = self._expect(messages.INITIALIZE, messages.FINALIZE)
        if messages.kind_of(frame) == messages.FINALIZE:  # nothing was initialized
            return 0
        model = self._initialize(frame)
        if model is None:
            return process.EXIT_NOT_STARTED
        del frame
        while True:
            frame = self._next()
            kind = messages.kind_of(frame)
            if kind == messages.EXECUTE:
                if frame[6] & messages.AHEAD and not channel.begin_ahead(messages.HEADER.unpack_from(frame)[5]):
                    self._skip(frame)
                elif self._readiness is None:
                    self._execute(model, frame)
                else:
                    self._readiness.begin()
                    self._execute(model, frame)
                    self._readiness.end()
            elif kind == messages.FINALIZE:
                self._finalize(model)
                return 0
            else:
                self._misplaced(frame)
            del frame  # or the last batch would live until the next

    def _expect(self, *kinds: int) -> bytes:
        """Wait for a frame of one of these kinds."""
        while True:
            frame = self._next()
            if messages.kind_of(frame) in kinds:
                return frame
            self._misplaced(frame)

    def _misplaced(self, frame: bytes) -> None:
        """Pass over a frame that does not belong here; a batch is answered."""
        kind = messages.kind_of(frame)
        text = f"a frame of kind {kind} came {'after' if self._told else 'before'} INITIALIZE"
        if kind == messages.EXECUTE:
            self._publish_failed(messages.HEADER.unpack_from(frame)[5], 0, 0, text)
        self._complain(text)

    def _next(self) -> bytes:
        """Wait for a frame. The model has returned: what a handler raises from here on is the next execute's."""
        self._handlers.within = False
        return self._channel.receive(self._box)

    def _route(self, frame: bytes) -> Mailbox[bytes] | None:
        """Return the mailbox that gets a frame; called in the thread that has read it."""
        kind = messages.kind_of(frame)
        if kind in (messages.EXECUTE, messages.INITIALIZE, messages.FINALIZE, messages.AUTO_COMPLETE):
            return self._box
        try:
            if kind == messages.RESULT:
                return self._calls.route(frame)
            if kind == messages.LOG_SETTINGS:
                self._logs.settle(messages.LogSettings.from_map(messages.map_of(frame)))
            elif not self._told:
                raise NotUnderstood("it came before INITIALIZE")
            elif kind == messages.INFER_RESPONSE:
                return self._inferences.route(frame)
            elif kind == messages.CREDIT:
                return self._senders.credit(*messages.credit(frame))
            elif kind == messages.CANCEL:
                self._senders.cancel(messages.integers(messages.body_of(frame)))
            elif kind == messages.NAME:
                self._names.learn(frame)
            elif kind == messages.MAP:
                self._regions.map(frame)
            elif kind == messages.UNMAP:
                self._regions.unmap(frame)
            elif kind == messages.ALLOCATION:
                self._elsewhere().learn(frame)
            elif kind == messages.FREED:
                self._elsewhere().forget(frame)
            elif kind == messages.READY_QUESTION and self._readiness is not None:
                return self._readiness.box
            else:
                raise NotUnderstood("such a one does not come here")
            return None
        except NotUnderstood as error:
            text = f"a frame of kind {kind} is not understood: {error}"
        self._complain(text)
        if kind == messages.CREDIT and self._told:
            # What it was worth is not known, and the sender might wait for it for ever.
            return self._senders.give_up(messages.HEADER.unpack_from(frame)[5], text)
        return None

    def _unspill(self, frame: bytes) -> bytes:
        """Put a frame together with its body, which lies in a block.

        Where that cannot be done what comes back has no body and is still marked, so no decoder understands it.
        """
        _, kind, flags, life, _, ident = messages.HEADER.unpack_from(frame)
        ticket = None
        try:
            region, offset, count, ticket = messages.place_of_body(frame)
            if region != layout.REGION_REQUESTS:
                raise NotUnderstood(f"it lies in region {region}")
            if offset + count > self._loans.size:
                raise NotUnderstood(f"it has {count} bytes at {offset} of {self._loans.size}")
            body = bytearray(count)
            self._loans.read_into(body, offset)
            whole = messages.encode(kind, life, ident, bytes(body), flags & ~messages.SPILLED)
        except (NotUnderstood, OSError, EOFError, MemoryError) as error:
            self._complain(f"the spilled body of a frame of kind {kind} cannot be read: {error!r}")
            whole = messages.encode(kind, life, ident, b"", flags)
        if ticket is not None:
            self._channel.give_back(ticket)
        return whole

    def _spill(self, body: bytes) -> bytes:
        if len(body) > layout.MAX_SPILLED:
            raise PoolExhausted(
                f"an answer has {len(body)} bytes without its tensors, at most {layout.MAX_SPILLED} can be"
            )
        block = self._pool.take(len(body))
        block.fill(body)
        return messages.spilled_body(layout.REGION_ARENA, block.offset, len(body), self._pool.lend(block))

    def _settle(self, settings: Settings) -> None:
        """Get ready for the model, once."""
        self._logs.settle(settings.log)
        if self._model is not None:
            return
        channel = self._channel
        self._pool = Pool(channel, self._fds.up, settings.default_bytes, settings.growth_bytes, settings.max_bytes)
        self._pool.elsewhere = self._elsewhere
        channel.spill = self._spill
        channel.idle = self._idle
        channel.spin = Spin(settings.spin_us * 1000)
        runtime.install(
            _Runtime(self._logs, self._pool, self._calls, self._inferences, settings.directory, self._outlet)
        )

    def _elsewhere(self) -> OnDevice:
        """What has to do with memory of devices, made at the first need: most models have none."""
        if not self._devices:
            from .ondevice import OnDevice

            # Several threads may need it first. One of theirs is kept, or allocations had their numbers twice.
            self._devices.setdefault(0, OnDevice(self._channel, self._pool))
        return self._devices[0]

    def _idle(self) -> int | None:
        """Give back memory before sleep; the milliseconds after which another look is worth while."""
        here = self._pool.patience()
        if not self._devices:
            return here
        elsewhere = self._devices[0].patience()
        return elsewhere if here is None else here if elsewhere is None else min(here, elsewhere)

    def _import(self, settings: Settings) -> Model:
        """Import the model, once."""
        if self._model is None:
            process.hide(self._root, settings.search)
            if not os.path.isfile(settings.path):
                text = f"Python model file not found in '{settings.path}'"
                process.complain(self._instance, f"Failed to preinitialize Python stub: {text}")
                raise _NotStarted(text)
            self._model = Model(settings.path, settings.module)
        return self._model

    def _outlet(self, request: InferenceRequest) -> runtime.Outlet | None:
        """What the runtime offers. Before INITIALIZE there are only requests that the model has made."""
        return self._senders.outlet(request) if request._handle else None

    def _complete(self, frame: bytes) -> bool:
        """Have the model complete its config and say how that went; False if it did not."""
        channel = self._channel
        text = trace = config = ""
        try:
            question = AutoComplete.from_frame(frame)
            self._settle(question.settings)
            config = self._import(question.settings).complete(question.model, question.config)
        except (_NotStarted, NotCompleted) as refusal:
            text = str(refusal)
        except NotUnderstood as error:
            text = f"AUTO_COMPLETE is not understood: {error}"
        except BaseException as error:
            text = failure.describe(error)
            trace = failure.trace(error)
        if text:
            self._logs.start()
            self._complain(f"Failed to initialize Python stub for auto-complete: {text}", 0, trace)
        self._leave_children()
        channel.publish(messages.completed(channel.life, text, config))
        return not text

    def _initialize(self, frame: bytes) -> Model | None:
        """Bring the model up and say how that went; None if it did not."""
        channel = self._channel
        try:
            question = Initialize.from_frame(frame)
        except NotUnderstood as error:
            text = f"INITIALIZE is not understood: {error}"
            self._logs.start()
            self._complain(f"Failed to initialize Python stub: {text}")
            channel.publish(messages.initialized(channel.life, text, False))
            return None
        self._settle(question.settings)
        self._calls.open()
        self._names = Names(channel, question.names, question.inputs, question.outputs)
        self._reader = Reader(self._names, self._loans, self._regions, self._elsewhere)
        model_name = question.args.get("model_name", "")
        self._decoupled = question.decoupled
        self._overlap = question.async_overlap
        self._undeclared = Undeclared(model_name, self._names.outputs, question.strict_outputs, self._logs)
        self._senders = Senders(
            channel,
            self._loans,
            self._regions,
            self._pool,
            self._logs,
            self._instance,
            question.decoupled,
            question.window_responses,
            question.window_bytes,
            self._undeclared,
        )
        self._regions.gone = self._senders.gone
        self._inferences.settle(self._pool, self._names, self._reader, model_name, question.version, question.decoupled)
        self._told = True
        text = trace = ""
        model = None
        try:
            model = self._start(question)
        except _NotStarted as refusal:
            text = str(refusal)
        except BaseException as error:
            text = failure.describe(error)
            trace = failure.trace(error)
            if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
                text += limits()
        self._logs.start()
        if text:
            self._complain(f"Failed to initialize Python stub: {text}", 0, trace)
            model = None
        self._leave_children()
        if model is not None and model.has_is_ready:
            self._readiness = Readiness(channel, self._instance, model, self._service)
        channel.publish(messages.initialized(channel.life, text, model is not None and model.has_is_ready))
        return model

    def _start(self, question: Initialize) -> Model:
        model = self._import(question.settings)
        self._handlers.leave()
        model.make()
        self._logs.start()
        model.initialize(question.args)
        self._inferences.allowed = True
        return model

    def _execute(self, model: Model, frame: bytes) -> None:
        """Run one batch and answer it. Whatever the model does, every request of the batch is answered."""
        channel = self._channel
        channel.executing = True
        batch = messages.HEADER.unpack_from(frame)[5]
        wrong = ""
        try:
            requests = self._reader.read(frame)
        except NotUnderstood as error:
            wrong = str(error)
        if wrong:  # the loans that were found have ended with the exception
            channel.executing = False
            wrong = self._senders.failure(f"the server's message is not understood: {wrong}")
            self._complain(wrong, batch)
            self._publish_failed(batch, _now(), _now(), wrong)
            return
        del frame  # the requests hold it, as long as they need it
        self._senders.unanswered.clear()
        count = len(requests)
        mine = requests[:]  # the model may do with its list what it likes
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
            # Or the tensors of its responses, and their memory on devices, would outlive the answer.
            result = None  # noqa: F841
        except ForeignProcess:
            raise
        except BaseException as error:
            text = failure.describe(error, place)
            trace = failure.trace(error)
            failed = True
        if channel.foreign:
            self._leave_children()
        senders = self._senders
        if text:
            senders.fail(mine)
        if senders.cancelled:
            senders.forget(mine)
        del mine  # with it those requests end that are left unanswered and that the model has forgotten
        if failed:
            # An exception that a local variable of its own frame holds keeps the requests alive, and with them loans.
            # In Python 3.14 generation 1 alone is an increment of the old objects, which may leave young ones out.
            gc.collect(0)
            gc.collect(1)
        if self._regions.alive:  # the model keeps inputs: their clients are about to have them back
            self._regions.freeze()
        # From here on tickets that this batch leaves behind go by themselves.
        channel.executing = False
        if not text:
            lost = senders.forgot(answers.left_open) if 0 < len(answers.left_open) == count else ""
            try:
                if lost:  # the clients have been told, and the log: this makes it count
                    self._publish_failed(batch, start, end, lost)
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

    def _skip(self, frame: bytes) -> None:
        """Leave out a batch that was withdrawn, and say so. Its loans go back with the notice, behind it."""
        channel = self._channel
        channel.executing = True
        try:
            self._reader.read(frame)  # makes the loans, whose end gives their tickets back
        except NotUnderstood as error:
            self._complain(str(error), messages.HEADER.unpack_from(frame)[5])
        channel.executing = False
        channel.publish(messages.executed_skipped(channel.life, messages.HEADER.unpack_from(frame)[5]))

    def _awaited(self, model: Model, number: int, result: Any, mine: list[InferenceRequest], answers: Answers) -> Any:
        """Deal with a coroutine, and return what `_answer` is to be given; anything else is returned as it is."""
        from .coroutines import is_coroutine  # which imports asyncio

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
        """Take account of a coroutine that ran on when its batch had been left open."""
        senders = self._senders
        try:
            if error is not None:
                self._complain(failure.trace(error) or failure.describe(error), number)
                raise Refused(failure.describe(error))
            if result is None:
                return
            self._check(result, batch)
        except Refused as refusal:
            text = senders.failure(str(refusal))
            if error is None:
                self._complain(text, number)
            if error is None and self._decoupled:
                senders.blame(batch, text)  # what it has answered, or others will, is none the worse for it
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
            self._complain(text, number)
            senders.fail_each([request], text)

    def _answer(self, answers: Answers, number: int, result: Any, mine: list[InferenceRequest]) -> None:
        """Check what execute returned and gather it; what it does not answer is left open.

        What is wrong with one response is told to its client alone; of a batch of one, the batch has failed.
        """
        if result is None:
            self._leave_open(mine, answers)
            return
        senders = self._senders
        if not senders.claim(mine, result):
            self._check(result, mine)
        elif len(mine) == 1:
            try:
                answers.response(mine[0]._handle, result[0], wanted_of(mine[0]))
            except DeviceError as error:  # and no exception of the model
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
            self._complain(text, number)
            if senders.refuse(request):
                answers.error(request._handle, INTERNAL, text)

    def _leave_open(self, requests: Sequence[InferenceRequest], answers: Answers) -> None:
        for request in requests:
            if self._senders.leave_open(request):
                answers.left_open = (*answers.left_open, request._handle)
            else:
                answers.reschedule(request._handle)

    def _check(self, result: Any, mine: list[InferenceRequest]) -> None:
        """Refuse what is no answer to a batch."""
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
        """What is wrong with an element of the list that execute returned, "" if nothing is."""
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
        self._complain(text, batch, trace)
        self._publish_failed(batch, start, end, text)

    def _publish_failed(self, batch: int, start: int, end: int, text: str) -> None:
        channel = self._channel
        raw = text.encode("utf-8", "backslashreplace")
        try:
            channel.publish(messages.executed_failed(channel.life, batch, start, end, channel.take_tickets(), raw))
        except PoolExhausted:
            raw = raw[:_CUT].decode("utf-8", "ignore").encode()
            channel.publish(messages.executed_failed(channel.life, batch, start, end, channel.take_tickets(), raw))

    def _finalize(self, model: Model) -> None:
        text = ""
        self._inferences.allowed = False
        if self._readiness is not None:
            self._readiness.over = True
        try:
            self._handlers.leave()
        except BaseException as error:
            self._complain_of_end(failure.describe(error), error)
        try:
            model.finalize(self._calls.keep)
        except BaseException as error:
            text = failure.describe(error)
            self._complain_of_end(text, error)
        process.collect()  # what the model has left in circles ends while the server still listens
        self._leave_children()
        channel = self._channel
        if self._devices:
            self._linger(self._devices[0].pool)
        channel.publish(messages.finalized(channel.life, text))

    def _linger(self, pool: DevicePool) -> None:
        """Let other models open what was lent to them."""
        self._channel.release_tickets()  # another process may wait for what this model has had of it
        out = pool.out()
        if out:
            self._logs.complain(runtime.INFO, f"waiting for {out} tensors on devices that other models hold", 0, 1)
            pool.linger()

    def _complain_of_end(self, text: str, error: BaseException) -> None:
        trace = failure.trace(error)
        self._logs.complain(runtime.INFO, f"{text}\n{trace}" if trace else text, 0, 1)

    def _complain(self, text: str, batch: int = 0, trace: str = "") -> None:
        """Log an error, of a batch perhaps, and where it came from."""
        self._logs.complain(runtime.ERROR, f"{text}\n{trace}" if trace else text, batch, 1)

    def _leave_children(self) -> None:
        """End here a process that the model forked and that came back into this loop instead of ending."""
        if self._channel.foreign:
            raise ForeignProcess("a process that the model forked returned from the model's code")


_CUT = 16384


class _NotStarted(Exception):
    """The model was not tried; the text says why."""


class _Runtime:
    """What the API's classes ask of the stub."""

    def __init__(
        self,
        logs: Logs,
        pool: Pool,
        calls: Calls,
        inferences: Inferences,
        model_directory: str,
        outlet: Callable[[InferenceRequest], runtime.Outlet | None],
    ) -> None:
        self._directory = model_directory
        self.free_memory = pool.free
        self.log = logs.log
        self.instance = calls.instance
        self.load_model = calls.load_model
        self.unload_model = calls.unload_model
        self.is_model_ready = calls.is_model_ready
        self.new_family = calls.new_family
        self.drop_family = calls.drop_family
        self.new_metric = calls.new_metric
        self.change_metric = calls.change_metric
        self.metric_value = calls.metric_value
        self.outlet = outlet
        self.infer = inferences.infer
        self.infer_soon = inferences.infer_soon

    def model_directory(self) -> str:
        return self._directory
