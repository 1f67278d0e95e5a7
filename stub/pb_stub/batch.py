"""Decoding of EXECUTE and encoding of EXECUTED.

A batch of one small request takes a few microseconds here. This explains the local names, the slots
set from outside and the few calls: each call costs 50 to 100 ns.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np
from c_python_backend_utils.error import ErrorCode, TritonError
from c_python_backend_utils.memory import DeviceMemory
from c_python_backend_utils.parameters import NONE
from c_python_backend_utils.request import InferenceRequest
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.tensor import Tensor

from . import accelerator, layout, messages
from .channel import Channel
from .errors import NotUnderstood
from .loans import Loan, Loans
from .names import Names
from .outgoing import MAX_INLINE, MAX_INLINE_TOTAL, PADDING, Outgoing, Placed, describe
from .places import Places
from .pool import Pool
from .regions import Regions

if TYPE_CHECKING:
    from .deviceplaces import DeviceTarget
    from .ondevice import OnDevice
    from .undeclared import Undeclared

_unpack_request = messages.REQUEST.unpack_from
_unpack_descriptor = messages.DESCRIPTOR.unpack_from
_unpack_dimensions = tuple(form.unpack_from for form in messages.DIMENSIONS)
_unpack_response = messages.RESPONSE_HEAD.unpack_from
_pack_response = messages.RESPONSE_HEAD.pack
_pack_begin = messages.RESPONSE_BEGIN.pack

_LAST = messages.RESPONSE_PRESENT | messages.RESPONSE_FINAL
_LAST_ERROR = _LAST | messages.RESPONSE_ERROR
INTERNAL = int(ErrorCode(1))

#: The offset of the response in INFER_RESPONSE.
_RESPONSE_AT = messages.HEADER.size + messages.INFER_RESPONSE_HEAD.size

_MOST_CHOICES = 1024

#: Exceptions of decoding an invalid frame, or one whose content does not fit in memory.
_WRONG = (struct.error, IndexError, UnicodeDecodeError, MemoryError)

#: The requested outputs of one request, with their indices.
Wanted = Mapping[str, int]


class Reader:
    """Decodes requests from EXECUTE frames."""

    def __init__(
        self,
        names: Names,
        loans: Loans,
        regions: Regions | None = None,
        elsewhere: Callable[[], OnDevice] | None = None,
    ) -> None:
        self._names = names
        self._loans = loans
        self._regions = regions
        self._elsewhere = elsewhere  # created for the first tensor on a device
        self._choices: dict[bytes, Wanted] = {}  # by the bytes that name them

    def read(self, frame: bytes) -> list[InferenceRequest]:
        """Decode a batch."""
        names = self._names
        fast = accelerator.module
        try:
            if fast is not None:
                requests: list[InferenceRequest] | None
                requests = fast.read(self, frame, names.received, names.outputs, self._choices, self._loans)
                if requests is not None:
                    return requests
            return self._read(frame)
        except _WRONG as error:
            raise NotUnderstood(f"EXECUTE of {len(frame)} bytes: {error!r}") from error

    def _read(self, frame: bytes) -> list[InferenceRequest]:
        requests: list[InferenceRequest] = []
        new_request = InferenceRequest.__new__
        (count, head_flags) = messages.EXECUTE_HEAD.unpack_from(frame, messages.HEADER.size)
        at = messages.HEADER.size + messages.EXECUTE_HEAD.size
        for _ in range(count):
            (
                handle, correlation, timeout, flags, inputs, outputs,
                id_size, parameter_size, text_size, trace_size, correlation_kind, places, _,
            ) = _unpack_request(frame, at)  # fmt: skip
            at += 64
            tensors, at = self._tensors(frame, at, inputs, head_flags & messages.EXECUTE_COPIES)
            request = new_request(InferenceRequest)
            request._inputs = tensors
            request._handle = handle
            request._sender = None
            request._flags = flags
            request._timeout = timeout
            request._correlation = correlation
            if outputs == messages.ALL_OUTPUTS:
                choice: Wanted = self._names.outputs
            else:
                choice = self._choice(frame[at : at + 2 * outputs])
                at += (2 * outputs + 7) & ~7
            if places:
                choice, at = self._places(frame, at, places, choice, handle)
            request._wanted = choice
            if id_size | parameter_size | text_size | trace_size:
                begin = at
                request._id = frame[at : at + id_size].decode()
                at += id_size
                request._parameters = frame[at : at + parameter_size].decode() if parameter_size else NONE
                at += parameter_size
                if correlation_kind == messages.CORRELATION_TEXT:
                    request._correlation = frame[at : at + text_size].decode()
                at += text_size
                request._trace = frame[at : at + trace_size].decode() if trace_size else None
                at = begin + ((at + trace_size - begin + 7) & ~7)
            else:
                request._id = ""
                request._parameters = NONE
                request._trace = None
                if correlation_kind == messages.CORRELATION_TEXT:
                    request._correlation = ""
            requests.append(request)
        if at > (len(frame) + 7) & ~7:  # slices do not detect this
            raise NotUnderstood(f"EXECUTE of {len(frame)} bytes: its requests end at {at}")
        return requests

    def _tensors(self, frame: bytes, at: int, count: int, copies: int = 0) -> tuple[list[Tensor], int]:
        """Decode descriptors from `at` as tensors, perhaps with copies; also returns their end."""
        tensors: list[Tensor] = []
        new_tensor = Tensor.__new__
        received = self._names.received
        for _ in range(count):
            name, code, rank, region, offset, size, ticket, element, number = _unpack_descriptor(frame, at)
            tensor = new_tensor(Tensor)
            tensor._code = code
            tensor._array = tensor._data = tensor._sent = None
            tensor._element = element
            if region == 0:
                tensor._origin = frame
                tensor._offset = offset
            elif region >= layout.REGION_DEVICE:
                tensor._data = self._borrowed(region, number, ticket, offset, size, element)
                tensor._origin = None
                tensor._element = 0
            elif region == layout.REGION_CLIENT and self._regions is not None:
                tensor._origin = self._regions.loan(number, ticket, offset, size)
                tensor._offset = 0
            else:
                loan = Loan(self._loans, ticket, offset, size)
                tensor._origin = loan.read() if copies else loan
                tensor._offset = 0
                del loan  # otherwise the next tensor would end it
            tensor._size = size
            # Set last: if the name or rank is unknown, the ticket goes back with the tensor.
            tensor._name = received[name]
            tensor._shape = _unpack_dimensions[rank](frame, at + 40)
            at += 40 + 8 * rank
            tensors.append(tensor)
        return tensors, at

    def _borrowed(self, region: int, number: int, ticket: int, offset: int, size: int, element: int) -> DeviceMemory:
        """Return the memory on a device that a descriptor names."""
        if self._elsewhere is None or region > layout.REGION_OWN_DEVICE:
            raise NotUnderstood(f"a tensor is in unknown region {region}")
        own = region == layout.REGION_OWN_DEVICE
        alive = self._regions.alive if element == messages.CLIENTS_BYTES and self._regions is not None else None
        return self._elsewhere().borrowed(own, number, ticket, offset, size, element == messages.SOLE_READER, alive)

    def _places(self, frame: bytes, at: int, count: int, choice: Wanted, handle: int) -> tuple[Wanted, int]:
        """Decode the places from `at`. Returns the choice with its places, and their end."""
        if self._regions is None:
            raise NotUnderstood(f"there are {count} places of outputs but no regions")
        places = Places(choice, handle, self._regions)
        for _ in range(count):
            name, kind, number, offset, size = messages.PLACE.unpack_from(frame, at)
            if kind == messages.PLACE_REGION:
                self._regions.place(places, self._names.received[name], number, offset, size)
            elif kind == messages.PLACE_DEVICE:
                places.let_stay(None if name == messages.ALL_OUTPUTS else self._names.received[name])
            elif kind == messages.PLACE_ALLOCATION:
                places.add(self._names.received[name], self._target(number), number, offset, size)
            else:
                raise NotUnderstood(f"a place of an output is of kind {kind}")
            at += messages.PLACE.size
        return places, at

    def _target(self, number: int) -> DeviceTarget:
        """Return a client's allocation for an output."""
        from .deviceplaces import DeviceTarget  # imports ctypes

        if self._elsewhere is None:
            raise NotUnderstood(f"an output is wanted in allocation {number}, and none is known")
        return DeviceTarget(self._elsewhere(), number)

    def response(self, frame: bytes) -> tuple[InferenceResponse, bool]:
        """Decode INFER_RESPONSE. Returns the response, and whether it is the last one."""
        try:
            return self._response(frame)
        except _WRONG as error:
            raise NotUnderstood(f"INFER_RESPONSE of {len(frame)} bytes: {error!r}") from error

    def _response(self, frame: bytes) -> tuple[InferenceResponse, bool]:
        _, flags, outputs, code, parameter_size, error_size, _ = _unpack_response(frame, _RESPONSE_AT)
        response = InferenceResponse.__new__(InferenceResponse)
        fast = accelerator.module
        found = None
        if fast is not None:
            found = fast.tensors(frame, _RESPONSE_AT + 32, outputs, self._names.received, self._loans)
        response._outputs, at = found or self._tensors(frame, _RESPONSE_AT + 32, outputs)
        response._error = None
        last = bool(flags & messages.RESPONSE_FINAL)
        if at + parameter_size + error_size > len(frame):
            raise NotUnderstood(f"INFER_RESPONSE of {len(frame)} bytes: its strings end after its end")
        if flags & messages.RESPONSE_ERROR:
            at += parameter_size
            response._error = error_of(frame[at : at + error_size].decode(), code)
            response._parameters = ""
        elif flags & messages.RESPONSE_PRESENT:
            response._parameters = frame[at : at + parameter_size].decode() if parameter_size else NONE
        else:  # the end of a stream, without a response
            response._parameters = ""
        return response, last

    def _choice(self, raw: bytes) -> Wanted:
        """Return the outputs that a request names, cached because clients repeat their choice."""
        choice = self._choices.get(raw)
        if choice is None:
            if len(self._choices) == _MOST_CHOICES:
                self._choices.clear()
            indices = struct.unpack(f"<{len(raw) // 2}H", raw)
            names = (self._names.received[index] for index in indices)
            choice = self._choices[raw] = {name: self._names.index(name) for name in names}
        return choice


def wanted_of(request: InferenceRequest) -> Wanted:
    """Return the requested outputs of a request that the reader decoded."""
    wanted: Any = request._wanted
    return wanted  # type: ignore[no-any-return]


def error_of(text: str, code: int) -> TritonError:
    """Make the error that another model responded with."""
    error = TritonError.__new__(TritonError)
    error._message = text
    error._code = error._given = code
    return error


class Answers(Outgoing):
    """The responses to one batch, collected while the model's objects live and packed afterwards.

    In that order, the loans of the batch end with it: their tickets travel in the frame that
    answers it. A response that is sent alone is also encoded here.
    """

    _tickets: Sequence[int] = ()  # tickets that the frame returns
    #: Handles of the batch's requests that it does not answer.
    left_open: Sequence[int] = ()

    def __init__(self, channel: Channel, loans: Loans, pool: Pool, undeclared: Undeclared | None = None) -> None:
        super().__init__(channel, loans, pool)
        self._undeclared = undeclared
        self._responses: list[tuple[int, int, int, bytes, bytes, list[Placed]]] = []
        self._head_size = 0  # of all responses, without tensor bytes
        self._gathered: Any = None  # instead, all responses, if the accelerator has encoded them

    def gather(self, requests: list[InferenceRequest], responses: list[InferenceResponse]) -> bool:
        """Answer a batch with one final response each; False if `response` must do it."""
        fast = accelerator.module
        if fast is not None:
            self._gathered = fast.gather(requests, responses, self)
        return self._gathered is not None

    def error(self, handle: int, code: int, text: str, final: bool = True) -> None:
        """Answer a request with an error."""
        raw = text.encode("utf-8", "backslashreplace")
        flags = _LAST_ERROR if final else _LAST_ERROR & ~messages.RESPONSE_FINAL
        self._responses.append((handle, flags, code, b"", raw, []))
        self._head_size += 32 + ((len(raw) + 7) & ~7)

    def reschedule(self, handle: int) -> None:
        """Return a request to be executed again."""
        self._responses.append((handle, messages.RESPONSE_RESCHEDULE, 0, b"", b"", []))
        self._head_size += 32

    def gather_one(self, handle: int, response: InferenceResponse, wanted: Wanted, final: bool) -> None:
        """Like `response`, for the only response of a frame."""
        fast = accelerator.module
        if fast is not None:
            self._gathered = fast.gather_one(handle, response, wanted, final, self)
        if self._gathered is None:
            self.response(handle, response, wanted, final)

    def response(self, handle: int, response: InferenceResponse, wanted: Wanted, final: bool = True) -> None:
        """Answer a request with a response, without the outputs that were not requested."""
        error = response._error
        if error is not None:
            message = error._message
            text = message if isinstance(message, str) else message.decode("utf-8", "replace")
            self.error(handle, error._code, text, final)
            return
        outputs: list[Placed] = []
        head_size = 32
        unwanted = False
        try:
            for tensor in response._outputs:
                name: Any = tensor._name  # bytes are not a key, so not requested
                index = wanted.get(name)
                if index is None:
                    unwanted = True
                    continue
                shape = tensor._shape
                head_size += 40 + 8 * len(shape)
                # The common case, a small new array, without another call.
                array: Any = tensor._data
                if tensor._sent is None and array.__class__ is np.ndarray and array.nbytes <= MAX_INLINE:
                    tensor._sent = data = array.tobytes()
                    size = self._inline_size + ((len(data) + 15) & ~15)
                    if size <= MAX_INLINE_TOTAL:
                        self._inline_size = size
                        outputs.append((index, tensor._code, shape, 0, data, len(data), 0, 0, 0))
                        continue
                outputs.append(self._wanted(index, tensor, wanted) or self.place(index, tensor))
        except BaseException:
            self.retract(outputs)
            raise
        if unwanted:
            refusal = "" if self._undeclared is None else self._undeclared.refusal(response._outputs, wanted)
            if refusal:
                self.retract(outputs)
                self.error(handle, INTERNAL, refusal, final)
                return
            response._outputs = [tensor for tensor in response._outputs if tensor._name in wanted]
        parameters = b"" if response._parameters == NONE else response._parameters.encode()
        flags = _LAST if final else messages.RESPONSE_PRESENT
        self._responses.append((handle, flags, 0, parameters, b"", outputs))
        self._head_size += head_size + ((len(parameters) + 7) & ~7)

    def _wanted(self, index: int, tensor: Tensor, wanted: Wanted) -> Placed | None:
        """Put an output where EXECUTE requests it, or leave it in place; None if impossible."""
        if not isinstance(wanted, Places):
            return None
        if isinstance(tensor._data, DeviceMemory) and wanted.stays(tensor):
            return self.stay(index, tensor)
        put = wanted.write(tensor)
        if put is None:
            return None
        region, number, offset, count = put
        return index, tensor._code, tensor._shape, region, offset, count, 0, 0, number

    def size(self) -> int:
        """Return the bytes of all outputs."""
        if self._gathered is not None:
            size: int = self._gathered.size()
            return size
        return sum(placed[5] for *_, outputs in self._responses for placed in outputs)

    def withdraw(self) -> None:
        """Discard the answers: the batch has failed, or the frame cannot be sent."""
        super().withdraw()
        self._responses.clear()
        self._gathered = None
        tickets, self._tickets = self._tickets, ()
        for ticket in tickets:
            self._channel.give_back(ticket)

    def pack(self, batch: int, start: int, end: int) -> bytes:
        """Encode the EXECUTED frame, with all pending tickets."""
        self._tickets = tickets = self.let_go()
        if self._gathered is not None:
            frame: bytes = self._gathered.pack(self._channel.life, batch, start, end, tickets)
            return frame
        head_size = 56 + 8 * len(tickets) + self._head_size
        head = messages.EXECUTED_HEAD.pack(len(self._responses), messages.STATUS_EXECUTED, start, end, len(tickets), 0)
        return self._pack(messages.EXECUTED, batch, head, tickets, head_size)

    def pack_response(self, handle: int) -> bytes:
        """Encode the RESPONSE frame of the only response here, with all pending tickets."""
        self._tickets = tickets = self.let_go()
        if self._gathered is not None:
            frame: bytes = self._gathered.pack_response(self._channel.life, handle, tickets)
            return frame
        head_size = 32 + 8 * len(tickets) + self._head_size
        return self._pack(messages.RESPONSE, handle, _pack_begin(len(tickets), 0), tickets, head_size)

    def _pack(self, kind: int, ident: int, head: bytes, tickets: list[int], head_size: int) -> bytes:
        data_at = (head_size + 15) & ~15
        parts = [b"", head]
        if tickets:
            parts.append(struct.pack(f"<{len(tickets)}Q", *tickets))
        inline: list[bytes] = [PADDING[data_at - head_size]]
        for handle, flags, code, parameters, text, outputs in self._responses:
            parts.append(_pack_response(handle, flags, len(outputs), code, len(parameters), len(text), 0))
            data_at = describe(outputs, parts, inline, data_at)
            if parameters or text:
                parts.append(parameters + text + PADDING[-(len(parameters) + len(text)) % 8])
        parts += inline
        parts[0] = messages.HEADER.pack(data_at, kind, 0, self._channel.life, 0, ident)
        return b"".join(parts)
