"""Requests that the model makes (BLS): INFER frames and their responses.

          exec             async_exec           exec(decoupled=True)
    who   any thread       any event loop       both
          waits in the     listens; the frame   frames wait in the stream's mailbox until they are taken;
          channel          is decoded where it  the supervisor sends WINDOW of them, and more as they are
                           is read              taken

Each request has its own number. `_open` has the requests whose last response has not arrived.
Responses to other requests, which the model has abandoned, are decoded and dropped, so that their
loans are returned.
"""

from __future__ import annotations

import struct
from itertools import count
from queue import Empty, SimpleQueue
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from c_python_backend_utils.binding import from_text
from c_python_backend_utils.error import ErrorCode, TritonModelException
from c_python_backend_utils.iterator import Arrival, ResponseIterator, iterator_over
from c_python_backend_utils.memory import TRITONSERVER_MEMORY_GPU, DeviceError, DeviceMemory
from c_python_backend_utils.parameters import NONE
from c_python_backend_utils.request import InferenceRequest, InferenceTrace
from c_python_backend_utils.response import InferenceResponse

from . import accelerator, messages
from .batch import Reader, error_of
from .callers import BATCH
from .channel import Channel, Mailbox
from .errors import NotUnderstood, StubError
from .names import Names, TooManyNames
from .outgoing import PADDING, Outgoing, describe
from .pool import PoolExhausted
from .relay import Relay
from .spin import Spin

if TYPE_CHECKING:
    from asyncio import Future

    from .futures import Inbox
    from .loans import Loans
    from .pool import Pool
    from .service import Service

#: Maximum number of responses of a stream in flight; more are requested in halves of that.
WINDOW = 32

#: Maximum number of models known to take only host tensors.
_MOST_MODELS = 1024

#: How long that is assumed: they may have been reloaded with another config.
TRY_AGAIN_SECONDS = 60.0

_INTERNAL = int(ErrorCode(1))
_NOT_NOW = "BLS is only supported during the 'execute' function."
_NOT_HERE = "async_exec() does not work in a process that the model forked"
_pack_head = messages.INFER_HEAD.pack
_pack_request = messages.REQUEST.pack
#: The offset of the flags' low byte in INFER_RESPONSE.
_FLAGS_AT = messages.HEADER.size + messages.INFER_RESPONSE_HEAD.size + 8


class Waiting(Protocol):
    """A waiter for INFER_RESPONSE."""

    number: int  # of the request
    device: int | None  # preferred device of its outputs; None: no preference

    def arrived(self, frame: bytes) -> Mailbox[bytes] | None:
        """Take a frame, in the thread that has read it, or return its mailbox."""


class Inferences:
    """All requests that this stub's model makes."""

    _pool: Pool
    _names: Names
    _reader: Reader
    _model: bytes  # the stub's own model, for requests passed to `execute`
    _version: int
    _spin: Spin  # of threads that wait for a response
    _decoupled: bool
    _executing: int  # the thread

    def __init__(self, channel: Channel, loans: Loans, service: Service, instance: str) -> None:
        self._channel = channel
        self._loans = loans
        self._service = service
        self._instance = instance
        self._numbers = count(1)
        self._open: dict[int, Waiting] = {}
        self._relay = Relay(self.infer)
        # By name and version: until when a model is assumed to take only host tensors, and the
        # model of each request with device tensors. Other models receive device tensors: if needed,
        # the server copies them.
        self._hosts: dict[tuple[bytes, int], float] = {}
        self._asked: dict[int, tuple[bytes, int]] = {}
        #: Whether BLS is allowed: after initialize, before finalize.
        self.allowed = False
        #: The batch whose `execute` is running, or 0.
        self.batch = 0
        #: The batch whose coroutine `execute` waits for, or 0.
        self.awaited = 0

    def settle(
        self, pool: Pool, names: Names, reader: Reader, model: str, version: int, decoupled: bool = False
    ) -> None:
        """Store the content of INITIALIZE, in the thread of `execute`.

        Before, BLS is not allowed.
        """
        self._pool = pool
        self._names = names
        self._reader = reader
        self._model = model.encode()
        self._version = version
        self._spin = Spin(self._channel.spin.budget)
        self._decoupled = decoupled
        self._executing = get_ident()

    # For the model.

    def infer(self, request: InferenceRequest, decoupled: bool) -> InferenceResponse | ResponseIterator:
        """Implement `exec`."""
        if self._channel.foreign:
            return self._relay.infer(request, decoupled)
        if not self.allowed:
            raise TritonModelException(_NOT_NOW)
        if not decoupled:
            call = Call(self)
            return self.begin(request, call, False) or self._first(call)[0]
        stream = Stream(self)
        refusal = self.begin(request, stream, True)
        return iterator_over(stream, stream.counted(self._first(stream)) if refusal is None else (refusal, True))

    def _first(self, waiting: Call | Stream) -> Arrival:
        """Wait for the first response."""
        try:
            frame = self._channel.receive(waiting.box, self._spin)
        except StubError as error:
            self.lose(error)
        except BaseException:  # of a signal handler
            self.forget(waiting.number)
            raise
        return self.brought(waiting.device, self.opened(frame))

    def infer_soon(self, request: InferenceRequest, decoupled: bool) -> Future[InferenceResponse | ResponseIterator]:
        """Implement `async_exec`."""
        from .futures import Answer  # importing asyncio takes 20 ms, and few models need it

        answer = Answer(self, Stream(self) if decoupled else None)
        if not self.allowed or self._channel.foreign:
            text = _NOT_HERE if self._channel.foreign else _NOT_NOW
            answer.future.set_exception(TritonModelException(text))
            return answer.future
        answer.begin()
        refusal = self.begin(request, answer, decoupled)
        if refusal is not None:
            answer.refuse(refusal)
        return answer.future

    # For waiters.

    def begin(self, request: InferenceRequest, waiting: Waiting, decoupled: bool) -> InferenceResponse | None:
        """Send a request. Returns an error response if it cannot be sent."""
        number = next(self._numbers)
        waiting.number = number
        waiting.device = _device(request)
        outgoing = Outgoing(self._channel, self._loans, self._pool)
        try:
            frame = self.pack(number, outgoing, request, decoupled)
            self._open[number] = waiting
            self._channel.publish(frame)
        except StubError as error:
            self.lose(error)
        except BaseException as error:
            self._open.pop(number, None)
            self._asked.pop(number, None)
            outgoing.withdraw()
            if isinstance(error, struct.error):
                return failed(f"the request does not fit into a message: {error}")
            if isinstance(error, (DeviceError, PoolExhausted, TooManyNames, Unknown)):
                return failed(str(error))
            raise
        if self._channel.executing:
            self._channel.release_tickets()  # otherwise frames received in a long execute would stay until its end
        return None

    def receive(self, box: Mailbox[bytes]) -> bytes:
        try:
            return self._channel.receive(box)
        except StubError as error:
            self.lose(error)

    def end(self) -> None:
        """End with the instance."""
        self._relay.end()

    def lose(self, error: StubError) -> NoReturn:
        """End the process: the channel is lost.

        In a child of the model, the caller gets the error.
        """
        if self._channel.foreign:
            raise error
        self._channel.lose(self._instance, error)

    def drop(self, box: Mailbox[bytes]) -> None:
        """Empty a mailbox. Decoding the remaining frames returns their loans."""
        while not box.empty():
            frame = box.get()
            if frame:
                self.opened(frame)

    def opened(self, frame: bytes) -> Arrival:
        """Decode a response.

        An invalid one becomes an error and the last: no more are requested.
        """
        if self._asked:
            self._learn(frame)
        try:
            return self._reader.response(frame)
        except NotUnderstood as error:
            text = f"the server's answer is not understood: {error}"
        number = messages.HEADER.unpack_from(frame)[5]
        self._open.pop(number, None)
        self._channel.post(messages.word(messages.STOP_INFER, self._channel.life, number, messages.STOP_FORGET))
        return failed(text), True

    def brought(self, device: int | None, arrival: Arrival) -> Arrival:
        """Copy outputs to the preferred device and wait, in the thread that takes them."""
        if device is not None and arrival[0]._outputs:
            from . import preferred  # imports ctypes

            preferred.bring(arrival[0]._outputs, device, self._pool.elsewhere().pool)
        return arrival

    def _learn(self, frame: bytes) -> None:
        """Learn from a response whether the model takes tensors on devices."""
        asked = self._asked.pop(messages.HEADER.unpack_from(frame)[5], None)
        if asked is not None and len(frame) >= messages.HEADER.size + messages.INFER_RESPONSE_HEAD.size:
            hint, _ = messages.INFER_RESPONSE_HEAD.unpack_from(frame, messages.HEADER.size)
            if hint == messages.HINT_HOST:
                if len(self._hosts) >= _MOST_MODELS:
                    self._hosts.clear()
                self._hosts[asked] = monotonic() + TRY_AGAIN_SECONDS
            elif hint == messages.HINT_DEVICES:
                self._hosts.pop(asked, None)

    def _tries(self, model: bytes, version: int) -> bool:
        """Return whether device tensors are sent unchanged to a model."""
        until = self._hosts.get((model, version))
        return until is None or monotonic() > until

    def replace(self, waiting: Waiting) -> None:
        """Replace the waiter for the remaining responses to a request."""
        if waiting.number in self._open:
            self._open[waiting.number] = waiting

    def demand(self, number: int, responses: int) -> None:
        """Let the supervisor send more responses of a stream."""
        self._send(messages.word(messages.DEMAND, self._channel.life, number, responses))

    def cancel(self, number: int) -> None:
        """Cancel a request whose responses are still needed."""
        if number in self._open:
            self._send(messages.word(messages.STOP_INFER, self._channel.life, number, messages.STOP_CANCEL))

    def _send(self, frame: bytes) -> None:
        try:
            self._channel.publish(frame)
        except StubError as error:
            self.lose(error)

    def forget(self, number: int) -> None:
        """Cancel a request that the model has abandoned. Never waits; may be called anywhere."""
        if self._open.pop(number, None) is not None:
            self._asked.pop(number, None)
            self._channel.post(messages.word(messages.STOP_INFER, self._channel.life, number, messages.STOP_FORGET))

    @property
    def channel(self) -> Channel:
        return self._channel

    @property
    def service(self) -> Service:
        """Return the service, for event loops that cannot listen."""
        return self._service

    # For the channel.

    def route(self, frame: bytes) -> Mailbox[bytes] | None:
        """Return the mailbox for an INFER_RESPONSE; called in the thread that has read it."""
        number = messages.HEADER.unpack_from(frame)[5]
        try:
            last = frame[_FLAGS_AT] & messages.RESPONSE_FINAL
        except IndexError:  # `opened` finds this too
            last = messages.RESPONSE_FINAL
        waiting = self._open.pop(number, None) if last else self._open.get(number)
        if waiting is None:
            self.opened(frame)
            return None
        return waiting.arrived(frame)

    # The frame.

    def pack(self, number: int, outgoing: Outgoing, request: InferenceRequest, decoupled: bool) -> bytes:
        """Encode the INFER frame; outgoing places its tensors."""
        if request._handle:
            model, version = self._model, self._version  # a request passed to `execute` is for this model
        else:
            model, version = from_text(request._model_name).encode(), request._model_version
        flags = messages.INFER_STREAM if decoupled else 0
        batch = BATCH.get()  # of a coroutine
        if batch:
            if batch == self.awaited:
                flags |= messages.INFER_HOLDING
        elif get_ident() == self._executing:
            batch = self.batch
            if batch:
                flags |= messages.INFER_HOLDING
        elif self.batch and not self._decoupled:
            # A thread may work for the current batch, or still run from an earlier one. In a
            # decoupled model, the latter is more likely.
            batch = self.batch
            flags |= messages.INFER_GUESS

        trace = _context(request)
        memory = _memory(request)
        fast = accelerator.module
        if fast is not None:
            sent = self._names.sent
            frame: bytes | None = fast.infer(
                self._channel.life, number, batch, version, flags, WINDOW, memory, model, trace, request, sent,
                outgoing,
            )  # fmt: skip
            if frame is not None:
                return frame
        name = model + PADDING[-len(model) % 8]
        head_size = 120 + len(name)
        known = self._names.sent.get
        placed = []
        for tensor in request._inputs:
            index = known(tensor._name)  # type: ignore[arg-type]  # bytes are not a key, and then an error
            if index is None:
                index = self._names.index(tensor.name())
            item = None
            if isinstance(tensor._data, DeviceMemory) and self._tries(model, version):
                item = outgoing.stay(index, tensor)
                if item is not None:
                    self._asked[number] = model, version
            if item is None:
                item = outgoing.place(index, tensor)
            placed.append(item)
            head_size += 40 + 8 * len(item[2])
        outputs = b""
        wanted = len(request._wanted)  # type: ignore[arg-type]  # a mapping in fact
        if wanted:
            indices = []
            for output in request._wanted:
                index = known(output)  # type: ignore[arg-type]
                indices.append(self._names.index(from_text(output)) if index is None else index)
            outputs = struct.pack(f"<{wanted}H", *indices)
            outputs += PADDING[-len(outputs) % 8]
            head_size += len(outputs)

        correlation = request._correlation
        kind = messages.CORRELATION_NUMBER
        text = b""
        if correlation.__class__ is str:
            text = correlation.encode()
            correlation = 0
            kind = messages.CORRELATION_TEXT
        ident = from_text(request._id).encode()
        parameters = b"" if request._parameters == NONE else request._parameters.encode()
        strings = ident + parameters + text + trace
        strings += PADDING[-len(strings) % 8]
        head_size += len(strings)

        data_at = (head_size + 15) & ~15
        parts = [
            b"",
            _pack_head(batch, version, flags, WINDOW, len(model), memory),
            name,
            _pack_request(
                0,
                correlation,
                request._timeout,
                request._flags,
                len(placed),
                wanted or messages.ALL_OUTPUTS,
                len(ident),
                len(parameters),
                len(text),
                len(trace),
                kind,
                0,
                0,
            ),
        ]
        inline = [PADDING[data_at - head_size]]
        size = describe(placed, parts, inline, data_at)
        parts.append(outputs)
        parts.append(strings)
        parts += inline
        parts[0] = messages.HEADER.pack(size, messages.INFER, 0, self._channel.life, 0, number)
        return b"".join(parts)


class Unknown(Exception):
    """The request names something that does not exist. The text is Triton's."""


class Call:
    """The only response to a request, for which a thread waits."""

    __slots__ = ("_inferences", "box", "device", "number")

    def __init__(self, inferences: Inferences) -> None:
        self._inferences = inferences
        self.box: Mailbox[bytes] = SimpleQueue()
        self.number = 0
        self.device: int | None = None

    def arrived(self, _frame: bytes) -> Mailbox[bytes] | None:
        return self.box

    def __del__(self) -> None:
        if not self.box.empty():
            self._inferences.drop(self.box)


class Stream:
    """The responses to one request, taken by threads or event loops."""

    __slots__ = ("__weakref__", "_inferences", "_soon", "_taken", "_wakers", "box", "device", "number")

    def __init__(self, inferences: Inferences) -> None:
        self._inferences = inferences
        self._soon = False  # an event loop takes responses
        self._taken = 0  # responses taken and not yet replaced by DEMAND
        self._wakers: list[tuple[Inbox, Future[None]]] = []
        self.box: Mailbox[bytes] = SimpleQueue()
        self.number = 0
        self.device: int | None = None

    def arrived(self, frame: bytes) -> Mailbox[bytes] | None:
        if not self._soon:
            return self.box
        self.box.put(frame)
        self.wake()
        return None

    def follow(self, number: int, device: int | None, first: bytes) -> Arrival:
        """Take over a request with its first response, in the thread that read it.

        Copies nothing.
        """
        self.number = number
        self.device = device
        self._soon = True
        self._inferences.replace(self)
        return self.counted(self._inferences.opened(first))

    def take(self) -> Arrival:
        return self._opened(self._inferences.receive(self.box))

    def _opened(self, frame: bytes) -> Arrival:
        inferences = self._inferences
        return self.counted(inferences.brought(self.device, inferences.opened(frame)))

    def counted(self, arrival: Arrival) -> Arrival:
        """Request more responses if enough have been taken."""
        if not arrival[1]:
            self._taken += 1
            if self._taken >= WINDOW // 2:
                taken, self._taken = self._taken, 0
                self._inferences.demand(self.number, taken)
        return arrival

    async def take_soon(self) -> Arrival:
        from .futures import inbox_here

        inbox = inbox_here(self._inferences)
        self._soon = True
        while True:
            frame = self._here()
            if frame:
                return self._opened(frame)
            waker = inbox, inbox.loop.create_future()
            self._wakers.append(waker)
            inbox.expect()
            try:
                if not self.box.empty():  # arrived meanwhile
                    self.wake()
                await waker[1]
            finally:
                inbox.done()

    def _here(self) -> bytes:
        """Return an available frame, or nothing. Empty frames are meant for the channel."""
        try:
            while True:
                frame = self.box.get_nowait()
                if frame:
                    return frame
        except Empty:
            return b""

    def wake(self) -> None:
        """Wake all event loops that wait for a response."""
        while self._wakers:
            inbox, future = self._wakers.pop()
            inbox.call(_resolve, future)

    def cancel(self) -> None:
        self._inferences.cancel(self.number)

    def stop(self) -> None:
        self._inferences.forget(self.number)

    def __del__(self) -> None:
        if not self.box.empty():
            self._inferences.drop(self.box)


def _resolve(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def failed(text: str, code: int = _INTERNAL) -> InferenceResponse:
    """Make an error response."""
    response = InferenceResponse.__new__(InferenceResponse)
    response._outputs = []
    response._error = error_of(text, code)
    response._parameters = ""
    return response


def _context(request: InferenceRequest) -> bytes:
    trace: Any = request._trace
    if isinstance(trace, InferenceTrace):
        trace = trace._context
    return b"" if trace is None else str(trace).encode()


def _device(request: InferenceRequest) -> int | None:
    """Return the preferred device of a request's outputs; None without a preference."""
    memory = None if request._handle else request._preferred_memory
    return memory._device if memory is not None and memory._kind == TRITONSERVER_MEMORY_GPU.value else None


def _memory(request: InferenceRequest) -> int:
    memory = None if request._handle else request._preferred_memory
    if memory is None:
        return 0
    if memory._kind not in (0, 1):
        raise Unknown("Unknown memory type")
    return 1 + memory._kind
