"""The main loop of a stub: from AUTO_COMPLETE or INITIALIZE to FINALIZED."""

from __future__ import annotations

import errno
import os
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Callable

import triton_python_backend_utils  # noqa: F401  # the model's path may contain another one, from a package
from c_python_backend_utils import runtime
from c_python_backend_utils.request import InferenceRequest

from . import failure, layout, messages, process
from .batch import Reader
from .calls import Calls
from .channel import Channel, Mailbox
from .errors import NotUnderstood
from .execution import Execution, complain, leave_children, publish_failed
from .handlers import Handlers
from .inferences import Inferences
from .loans import Loans
from .logs import Logs
from .mappings import limits
from .messages import AutoComplete, Initialize, Settings
from .model import CALLERS, Model, NotCompleted
from .names import Names
from .outgoing import accelerate
from .pool import Pool, PoolExhausted
from .process import Descriptors
from .readiness import Readiness
from .regions import Regions
from .senders import Senders
from .service import Service
from .spin import Spin
from .undeclared import Undeclared

if TYPE_CHECKING:
    from .devicepool import DevicePool
    from .ondevice import OnDevice

_now = time.monotonic_ns

_EXECUTE = messages.EXECUTE
_FOR_LOOP = frozenset((_EXECUTE, messages.INITIALIZE, messages.FINALIZE, messages.AUTO_COMPLETE))

#: Without the GIL, an object that another thread lets go of ends when the thread that made it runs
#: next. So a thread that waits while there are loans wakes now and then.
_LETTING_GO_MS = 100

accelerate()


class Loop:
    """One run of a stub, after HELLO."""

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
        self._model: Model | None = None  # once imported
        self._runtime: _Runtime | None = None  # once the settings are known
        self._told = False  # INITIALIZE was decoded
        self._devices: dict[int, OnDevice] = {}  # at most one, once needed
        self._readiness: Readiness | None = None  # for a model with is_ready
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
            kind = frame[4] | frame[5] << 8
            if kind == _EXECUTE:
                if frame[6] & messages.AHEAD and not channel.begin_ahead(messages.HEADER.unpack_from(frame)[5]):
                    self._execution.skip(frame)
                elif self._readiness is None:
                    self._execution.run(model, frame)
                else:
                    self._readiness.begin()
                    self._execution.run(model, frame)
                    self._readiness.end()
            elif kind == messages.FINALIZE:
                self._finalize(model)
                return 0
            else:
                self._misplaced(frame)
            del frame  # otherwise the last batch would live until the next

    def detach(self) -> bool:
        """Leave a process that goes on; returns whether no thread uses the descriptors any more."""
        if self._runtime is not None:
            runtime.remove(self._runtime)
        detached = self._channel.detach()
        self._inferences.end()
        self._service.end()
        if self._told:
            self._senders.forgotten.end()
        return detached

    def _expect(self, *kinds: int) -> bytes:
        """Wait for a frame of one of these kinds."""
        while True:
            frame = self._next()
            if messages.kind_of(frame) in kinds:
                return frame
            self._misplaced(frame)

    def _misplaced(self, frame: bytes) -> None:
        """Ignore an unexpected frame; a batch is answered."""
        kind = messages.kind_of(frame)
        text = f"a frame of kind {kind} came {'after' if self._told else 'before'} INITIALIZE"
        if kind == messages.EXECUTE:
            publish_failed(self._channel, messages.HEADER.unpack_from(frame)[5], 0, 0, text)
        complain(self._logs, text)

    def _next(self) -> bytes:
        """Wait for a frame, outside the model: exceptions of handlers now fail the next execute."""
        self._handlers.within = False
        return self._channel.receive(self._box)

    def _route(self, frame: bytes) -> Mailbox[bytes] | None:
        """Return the mailbox of a frame; called in the thread that has read it."""
        kind = frame[4] | frame[5] << 8
        if kind in _FOR_LOOP:
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
                raise NotUnderstood("unexpected kind of frame")
            return None
        except NotUnderstood as error:
            text = f"a frame of kind {kind} is not understood: {error}"
        complain(self._logs, text)
        if kind == messages.CREDIT and self._told:
            # The content is unknown, and a sender might wait for it forever.
            return self._senders.give_up(messages.HEADER.unpack_from(frame)[5], text)
        return None

    def _unspill(self, frame: bytes) -> bytes:
        """Combine a frame with its body, which is in a block.

        If that fails, the result has no body and is still marked as spilled, so that decoders
        reject it.
        """
        _, kind, flags, life, _, ident = messages.HEADER.unpack_from(frame)
        ticket = None
        try:
            region, offset, count, ticket = messages.place_of_body(frame)
            if region != layout.REGION_REQUESTS:
                raise NotUnderstood(f"it is in unknown region {region}")
            if offset + count > self._loans.size:
                raise NotUnderstood(f"it has {count} bytes at {offset} of {self._loans.size}")
            body = bytearray(count)
            self._loans.read_into(body, offset)
            whole = messages.encode(kind, life, ident, bytes(body), flags & ~messages.SPILLED)
        except (NotUnderstood, OSError, EOFError, MemoryError) as error:
            complain(self._logs, f"the spilled body of a frame of kind {kind} cannot be read: {error!r}")
            whole = messages.encode(kind, life, ident, b"", flags)
        if ticket is not None:
            self._channel.give_back(ticket)
        return whole

    def _spill(self, body: bytes) -> bytes:
        if len(body) > layout.MAX_SPILLED:
            raise PoolExhausted(
                f"a response has {len(body)} bytes without its tensors, at most {layout.MAX_SPILLED} are allowed"
            )
        block = self._pool.take(len(body))
        block.fill(body)
        return messages.spilled_body(layout.REGION_ARENA, block.offset, len(body), self._pool.lend(block))

    def _settle(self, settings: Settings) -> None:
        """Prepare for the model, once."""
        self._logs.settle(settings.log)
        if self._model is not None:
            return
        channel = self._channel
        self._pool = Pool(channel, self._fds.up, settings.default_bytes, settings.growth_bytes, settings.max_bytes)
        self._pool.elsewhere = self._elsewhere
        channel.spill = self._spill
        channel.idle = self._idle
        channel.spin = Spin(settings.spin_us * 1000)
        made = _Runtime(self._logs, self._pool, self._calls, self._inferences, settings.directory, self._outlet)
        self._runtime = made
        runtime.install(made)

    def _elsewhere(self) -> OnDevice:
        """Return the object for device memory, created on first use: most models have none."""
        if not self._devices:
            from .ondevice import OnDevice

            # Several threads may create it at the same time. Only one is kept, so that numbers stay
            # unique.
            self._devices.setdefault(0, OnDevice(self._channel, self._pool))
        return self._devices[0]

    def _idle(self) -> int | None:
        """Release memory before a sleep. Returns the milliseconds until the next useful check."""
        here = self._pool.patience()
        if process.FREE_THREADED and (self._loans.lent or (self._told and self._senders.some_are_open())):
            here = _LETTING_GO_MS if here is None else min(here, _LETTING_GO_MS)
        if not self._devices:
            return here
        elsewhere = self._devices[0].patience()
        return elsewhere if here is None else here if elsewhere is None else min(here, elsewhere)

    def _import(self, settings: Settings) -> Model:
        """Import the model, once."""
        if self._model is None:
            process.hide(self._root, settings.search, settings.dev)
            if not os.path.isfile(settings.path):
                text = f"Python model file not found in '{settings.path}'"
                process.complain(self._instance, f"Failed to preinitialize Python stub: {text}")
                raise _NotStarted(text)
            self._model = self._developed(settings) if settings.dev else Model(settings.path, settings.module)
        return self._model

    def _developed(self, settings: Settings) -> Model:
        """Import a model in development, with breakpoints at the terminal and watched imports."""
        from . import debugger
        from .imports import Imports

        debugger.install()
        imports = Imports(self._channel, self._root, settings.directory)
        try:
            model = Model(settings.path, settings.module)
        except BaseException as error:
            imports.report(error)
            raise
        debugger.attend(model)
        imports.attend(model)
        return model

    def _outlet(self, request: InferenceRequest) -> runtime.Outlet | None:
        """Return the outlet of a request.

        Before INITIALIZE, only BLS requests exist, without outlets.
        """
        return self._senders.outlet(request) if request._handle else None

    def _complete(self, frame: bytes) -> bool:
        """Let the model complete its config and report the result; False if it failed."""
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
            complain(self._logs, f"Failed to initialize Python stub for auto-complete: {text}", 0, trace)
        leave_children(self._channel)
        channel.ending = bool(text)
        channel.publish(messages.completed(channel.life, text, config))
        return not text

    def _initialize(self, frame: bytes) -> Model | None:
        """Start the model and report the result; None if it failed."""
        channel = self._channel
        try:
            question = Initialize.from_frame(frame)
        except NotUnderstood as error:
            text = f"INITIALIZE is not understood: {error}"
            self._logs.start()
            complain(self._logs, f"Failed to initialize Python stub: {text}")
            channel.ending = True
            channel.publish(messages.initialized(channel.life, text, False))
            return None
        self._settle(question.settings)
        self._calls.open()
        self._names = Names(channel, question.names, question.inputs, question.outputs)
        reader = Reader(self._names, self._loans, self._regions, self._elsewhere)
        model_name = question.args.get("model_name", "")
        undeclared = Undeclared(model_name, self._names.outputs, question.strict_outputs, self._logs)
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
            undeclared,
        )
        self._regions.gone = self._senders.gone
        self._inferences.settle(self._pool, self._names, reader, model_name, question.version, question.decoupled)
        self._execution = Execution(
            channel,
            self._handlers,
            self._logs,
            self._loans,
            self._regions,
            self._pool,
            reader,
            self._senders,
            self._inferences,
            undeclared,
            self._instance,
            question.decoupled,
            question.async_overlap,
        )
        self._told = True
        text = trace = ""
        model = None
        try:
            assert self._runtime is not None
            self._runtime.copies = not question.no_device_copy
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
            complain(self._logs, f"Failed to initialize Python stub: {text}", 0, trace)
            model = None
        leave_children(self._channel)
        channel.ending = model is None
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

    def _finalize(self, model: Model) -> None:
        text = ""
        self._inferences.allowed = False
        if self._readiness is not None:
            self._readiness.close()
        try:
            self._handlers.leave()
        except BaseException as error:
            self._complain_of_end(failure.describe(error), error)
        try:
            model.finalize(self._calls.keep)
        except BaseException as error:
            text = failure.describe(error)
            self._complain_of_end(text, error)
        process.collect()  # the model's reference cycles end while the server still listens
        leave_children(self._channel)
        self._loans.detach()
        channel = self._channel
        channel.ending = True
        if self._devices:
            self._linger(self._devices[0].pool)
        channel.publish(messages.finalized(channel.life, text))

    def _linger(self, pool: DevicePool) -> None:
        """Let other models open lent memory."""
        self._channel.release_tickets()  # another process may wait for its memory that this model had
        out = pool.out()
        if out:
            self._logs.complain(runtime.INFO, f"waiting for {out} tensors on devices that other models hold", 0, 1)
            pool.linger()

    def _complain_of_end(self, text: str, error: BaseException) -> None:
        trace = failure.trace(error)
        self._logs.complain(runtime.INFO, f"{text}\n{trace}" if trace else text, 0, 1)


class _NotStarted(Exception):
    """The model was not started; the text says why."""


class _Runtime:
    """The stub's services for the classes of the API."""

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
        #: Cleared if the model's config wants Triton's error.
        self.copies = True
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

    def converts_device_tensors(self) -> bool:
        return self.copies
