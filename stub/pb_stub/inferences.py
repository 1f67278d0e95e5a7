"""Requests that the model makes (BLS): INFER frames, and what becomes of the answers.

          exec             async_exec          exec(decoupled=True)
    who   any thread       any event loop      both
          waits in the     listens; the frame  frames wait in the mailbox of the stream until they are taken;
          channel          is opened where it  the supervisor sends WINDOW of them, and more as they are taken
                           is read

Each request has a number of its own. `_open` knows those whose last response has not come; answers to other requests,
which the model has given up, are opened and dropped, so that the loans in them go back.
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

from . import messages, process
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

#: How many responses of a stream may be in flight; the supervisor is asked for more by halves of that.
WINDOW = 32

#: Models of which it is known that they take tensors on the host alone.
_MOST_MODELS = 1024

#: How long that is believed: they may have been loaded anew, with another config.
TRY_AGAIN_SECONDS = 60.0

_INTERNAL = int(ErrorCode(1))
_NOT_NOW = "BLS is only supported during the 'execute' function."
_NOT_HERE = "async_exec() does not work in a process that the model forked"
_pack_head = messages.INFER_HEAD.pack
_pack_request = messages.REQUEST.pack
#: Where in INFER_RESPONSE the low byte of the flags is.
_FLAGS_AT = messages.HEADER.size + messages.INFER_RESPONSE_HEAD.size + 8


class Waiting(Protocol):
    """A waiter that INFER_RESPONSE answers."""

    number: int  # of the request
    device: int | None  # where its outputs are wanted; None: where they are

    def arrived(self, frame: bytes) -> Mailbox[bytes] | None:
        """Take a frame, in the thread that has read it, or say where it is to go."""


class Inferences:
    """All requests that this stub's model makes."""

    _pool: Pool
    _names: Names
    _reader: Reader
    _model: bytes  # name and version of the stub's own, which requests for `execute` are for
    _version: int
    _spin: Spin  # of threads that wait for an answer
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
        # Until when a model is believed to take tensors on the host alone, by name and version, and which model a
        # request with tensors on devices is for. Others are tried: the server copies for those that do not take them.
        self._hosts: dict[tuple[bytes, int], float] = {}
        self._asked: dict[int, tuple[bytes, int]] = {}
        #: Whether models may be called: after initialize, before finalize.
        self.allowed = False
        #: The batch whose `execute` has not returned, 0 if there is none.
        self.batch = 0
        #: The batch whose coroutine `execute` waits for, 0 if there is none.
        self.awaited = 0

    def settle(
        self, pool: Pool, names: Names, reader: Reader, model: str, version: int, decoupled: bool = False
    ) -> None:
        """Learn what INITIALIZE has brought, in the thread of `execute`. Before that no model may be called."""
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
        """What `exec` does."""
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
        """Wait for the first answer."""
        try:
            frame = self._channel.receive(waiting.box, self._spin)
        except StubError as error:
            self.lose(error)
        except BaseException:  # of a signal handler
            self.forget(waiting.number)
            raise
        return self.brought(waiting.device, self.opened(frame))

    def infer_soon(self, request: InferenceRequest, decoupled: bool) -> Future[InferenceResponse | ResponseIterator]:
        """What `async_exec` does."""
        from .futures import Answer  # asyncio takes 20 ms to import: few models need it

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
        """Send a request; returns the answer if it cannot be sent."""
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
            self._channel.release_tickets()  # or frames received in a long execute would stay until its end
        return None

    def receive(self, box: Mailbox[bytes]) -> bytes:
        try:
            return self._channel.receive(box)
        except StubError as error:
            self.lose(error)

    def lose(self, error: StubError) -> NoReturn:
        """End the process: nothing can be asked any more. In a child of the model the caller hears of it."""
        if self._channel.foreign:
            raise error
        process.lose(self._instance, error)

    def drop(self, box: Mailbox[bytes]) -> None:
        """Empty a mailbox. What came and was not taken holds loans, which go back when it is opened."""
        while not box.empty():
            frame = box.get()
            if frame:
                self.opened(frame)

    def opened(self, frame: bytes) -> Arrival:
        """Open an answer. An answer that is not understood becomes an error, and the last: nothing more is wanted."""
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
        """Bring outputs to the device where they are wanted, in the thread that takes them: it waits for the copies."""
        if device is not None and arrival[0]._outputs:
            from . import preferred  # with it comes ctypes

            preferred.bring(arrival[0]._outputs, device, self._pool.elsewhere().pool)
        return arrival

    def _learn(self, frame: bytes) -> None:
        """Take out of an answer whether the model takes tensors on devices."""
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
        """Whether a tensor on a device is sent to a model as it is."""
        until = self._hosts.get((model, version))
        return until is None or monotonic() > until

    def replace(self, waiting: Waiting) -> None:
        """Give another the answers to a request that come from now on."""
        if waiting.number in self._open:
            self._open[waiting.number] = waiting

    def demand(self, number: int, responses: int) -> None:
        """Let the supervisor send more responses of a stream."""
        self._send(messages.word(messages.DEMAND, self._channel.life, number, responses))

    def cancel(self, number: int) -> None:
        """Cancel a request whose responses are still wanted."""
        if number in self._open:
            self._send(messages.word(messages.STOP_INFER, self._channel.life, number, messages.STOP_CANCEL))

    def _send(self, frame: bytes) -> None:
        try:
            self._channel.publish(frame)
        except StubError as error:
            self.lose(error)

    def forget(self, number: int) -> None:
        """Cancel a request whose answers the model has given up. Never waits; may be called anywhere."""
        if self._open.pop(number, None) is not None:
            self._asked.pop(number, None)
            self._channel.post(messages.word(messages.STOP_INFER, self._channel.life, number, messages.STOP_FORGET))

    @property
    def channel(self) -> Channel:
        return self._channel

    @property
    def service(self) -> Service:
        """For event loops that cannot listen."""
        return self._service

    # For the channel.

    def route(self, frame: bytes) -> Mailbox[bytes] | None:
        """Return the mailbox that gets an INFER_RESPONSE; called in the thread that has read it."""
        number = messages.HEADER.unpack_from(frame)[5]
        try:
            last = frame[_FLAGS_AT] & messages.RESPONSE_FINAL
        except IndexError:  # which `opened` finds too
            last = messages.RESPONSE_FINAL
        waiting = self._open.pop(number, None) if last else self._open.get(number)
        if waiting is None:
            self.opened(frame)
            return None
        return waiting.arrived(frame)

    # The frame.

    def pack(self, number: int, outgoing: Outgoing, request: InferenceRequest, decoupled: bool) -> bytes:
        """Make the INFER frame, whose tensors outgoing places."""
        if request._handle:
            name, version = self._model, self._version  # one that came to `execute` is for this very model
        else:
            name, version = from_text(request._model_name).encode(), request._model_version
        model = name
        name_size = len(name)
        name += PADDING[-name_size % 8]
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
            # A thread may work for the batch that is executed, or run on since another. In a decoupled model it would
            # be the latter more often than not.
            batch = self.batch
            flags |= messages.INFER_GUESS

        head_size = 120 + len(name)
        known = self._names.sent.get
        placed = []
        for tensor in request._inputs:
            index = known(tensor._name)  # type: ignore[arg-type]  # bytes are no key, and an error then
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
        trace = _context(request)
        strings = ident + parameters + text + trace
        strings += PADDING[-len(strings) % 8]
        head_size += len(strings)

        data_at = (head_size + 15) & ~15
        parts = [
            b"",
            _pack_head(batch, version, flags, WINDOW, name_size, _memory(request)),
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
    """The request asks for what does not exist. The text is Triton's."""


class Call:
    """The one answer to a request, for which a thread waits."""

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
    """The responses to one request, taken by threads, or by event loops."""

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
        """Take over a request with its first answer, in the thread that has read it. It is not brought to a device."""
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
        """Ask for more responses if enough have been taken."""
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
                if not self.box.empty():  # come in between
                    self.wake()
                await waker[1]
            finally:
                inbox.done()

    def _here(self) -> bytes:
        """A frame that is here, or nothing. Empty ones mean something to the channel alone."""
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
    """Make the response that tells of an error."""
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
    """The number of the device where a request wants its outputs; None if it does not say."""
    memory = None if request._handle else request._preferred_memory
    return memory._device if memory is not None and memory._kind == TRITONSERVER_MEMORY_GPU.value else None


def _memory(request: InferenceRequest) -> int:
    memory = None if request._handle else request._preferred_memory
    if memory is None:
        return 0
    if memory._kind not in (0, 1):
        raise Unknown("Unknown memory type")
    return 1 + memory._kind
