"""BLS requests from processes that the model has forked, for example by multiprocessing's Pool.

Such a process has no connection to the supervisor. It asks its parent through a pair of sockets,
made at every fork; a grandchild asks the child. In the parent, one thread watches the sockets, and
from a child's first call on, another thread serves this child until it ends. Only `exec` with one
response is supported, one at a time.

The sockets carry a length and a marshalled tuple. Both ends run the same code of the same model.
"""

from __future__ import annotations

import marshal
import os
import select
import socket
import struct
import threading
from typing import Any, Callable

from c_python_backend_utils.binding import from_text
from c_python_backend_utils.error import TritonModelException
from c_python_backend_utils.memory import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    DeviceMemory,
    PreferredMemory,
)
from c_python_backend_utils.request import InferenceRequest, InferenceTrace
from c_python_backend_utils.response import InferenceResponse
from c_python_backend_utils.tensor import Tensor

from .batch import error_of
from .errors import ForeignProcess
from .process import AtForks

_LENGTH = struct.Struct("<Q")
_ALONE = "a process that the model forked has lost its parent, or its fork bypassed os.fork()"


class Relay(AtForks):
    """The connections of this process to its parent, if a model forked it, and to its children."""

    def __init__(self, infer: Callable[[InferenceRequest, bool], Any]) -> None:
        self._infer = infer
        self._up: socket.socket | None = None  # to the parent
        self._asking = threading.Lock()
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}  # by forking thread
        self._children: dict[int, socket.socket] = {}  # by descriptor
        self._calls: select.epoll | None = None
        self._ended: int | None = None  # wakes the thread that watches, when the instance has ended
        self.hook()

    def end(self) -> None:
        """End with the instance."""
        self.unhook()
        if self._calls is not None:
            self._ended, writer = os.pipe()
            self._calls.register(self._ended, select.EPOLLIN)
            os.close(writer)

    # Forking. An error must not prevent the model's fork: it only prevents BLS in the child.

    def prepare(self) -> None:
        self._pairs[threading.get_ident()] = socket.socketpair()

    def keep(self) -> None:
        near, far = self._pairs.pop(threading.get_ident(), (None, None))
        if near is None or far is None:
            return  # it was made meanwhile
        far.close()
        self._children[near.fileno()] = near
        if self._calls is None:
            self._calls = select.epoll()
            threading.Thread(target=self._watch, args=(self._calls,), name="pb_stub relay", daemon=True).start()
        self._calls.register(near.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    def disown(self) -> None:
        own = self._pairs.pop(threading.get_ident(), None)
        # A descriptor of another child left open here would hide that child's end from the parent.
        for near, far in self._pairs.values():
            near.close()
            far.close()
        for near in list(self._children.values()):
            near.close()
        if self._up is not None:
            self._up.close()
        if self._calls is not None:
            self._calls.close()
        self._pairs.clear()
        self._children.clear()
        self._up = self._calls = None
        self._asking = threading.Lock()
        if own is not None:
            own[0].close()
            self._up = own[1]

    # The parent.

    def _watch(self, calls: select.epoll) -> None:
        while self._ended is None:
            for fd, _ in calls.poll():
                child = self._children.get(fd)
                if child is not None:
                    threading.Thread(target=self._serve, args=(child,), name="pb_stub relay", daemon=True).start()

        os.close(self._ended)
        calls.close()

    def _serve(self, child: socket.socket) -> None:
        """Serve one child until it ends."""
        fd = child.fileno()
        try:
            while True:
                question = _receive(child)
                if question is None:
                    break
                _send(child, self._answer(question))
                del question
        except OSError:
            pass  # it has ended meanwhile
        finally:
            del self._children[fd]
            child.close()

    def _answer(self, question: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            response: InferenceResponse = self._infer(_request(question), False)
        except TritonModelException as error:
            return (str(error),)
        failure = response._error
        return (
            "",
            [_flat(tensor) for tensor in response._outputs],
            None if failure is None else (failure.message(), failure._code),
            response._parameters,
        )

    # The child.

    def infer(self, request: InferenceRequest, decoupled: bool) -> InferenceResponse:
        """Implement `exec` in a forked process."""
        if decoupled:
            raise TritonModelException("exec(decoupled=True) does not work in a process that the model forked")
        question = _question(request)
        with self._asking:
            up = self._up
            if up is None:
                raise ForeignProcess(_ALONE)
            try:
                _send(up, question)
                answer = _receive(up)
            except OSError as error:
                raise ForeignProcess(_ALONE) from error
        if answer is None:
            raise ForeignProcess(_ALONE)
        refusal, *rest = answer
        if refusal:
            raise TritonModelException(refusal)
        outputs, failure, parameters = rest
        response = InferenceResponse.__new__(InferenceResponse)
        response._outputs = [_tensor(*output) for output in outputs]
        response._error = None if failure is None else error_of(*failure)
        response._parameters = parameters
        return response


def _question(request: InferenceRequest) -> tuple[Any, ...]:
    """Return a request as it is sent to the parent."""
    memory = None
    name = None  # a request passed to `execute` is for the model itself
    version = 0
    if not request._handle:
        name, version = from_text(request._model_name), request._model_version
        if request._preferred_memory is not None:
            memory = request._preferred_memory._kind, request._preferred_memory._device
            if memory[0] == TRITONSERVER_MEMORY_GPU.value:  # bytes go through the sockets; devices are not shared
                memory = TRITONSERVER_MEMORY_CPU.value, 0
    trace: Any = request._trace
    if isinstance(trace, InferenceTrace):
        trace = trace._context
    return (
        [_flat(tensor) for tensor in request._inputs],
        name,
        version,
        request._handle,
        from_text(request._id),
        request._correlation,
        request._flags,
        request._timeout,
        request._parameters,
        [from_text(output) for output in request._wanted],
        memory,
        trace,
    )


def _request(question: tuple[Any, ...]) -> InferenceRequest:
    """Return the request that a child has sent."""
    request = InferenceRequest.__new__(InferenceRequest)
    inputs, name, version, request._handle, request._id, request._correlation, request._flags, *rest = question
    request._timeout, request._parameters, wanted, memory, request._trace = rest
    request._inputs = [_tensor(*flat) for flat in inputs]
    request._wanted = dict.fromkeys(wanted)
    request._sender = None
    request._preferred_memory = None
    if name is not None:
        request._model_name, request._model_version = name, version
    if memory is not None:
        request._preferred_memory = PreferredMemory.__new__(PreferredMemory)
        request._preferred_memory._kind, request._preferred_memory._device = memory
    return request


def _flat(tensor: Tensor) -> tuple[Any, ...]:
    """Return a tensor with its bytes."""
    data: Any = tensor._sent
    if not isinstance(data, bytes):
        data = tensor._data
        if data is None:
            data = tensor._bytes()
        elif isinstance(data, DeviceMemory):
            data = data.read()
        elif not isinstance(data, bytes):
            data = data.tobytes()
    return tensor.name(), tensor._code, tuple(map(int, tensor._shape)), tensor._element, data


def _tensor(name: str, code: int, shape: tuple[int, ...], element: int, data: bytes) -> Tensor:
    tensor = Tensor.__new__(Tensor)
    tensor._name = name
    tensor._code = code
    tensor._shape = shape
    tensor._element = element
    tensor._origin = data
    tensor._offset = 0
    tensor._size = len(data)
    tensor._array = tensor._data = tensor._sent = None
    return tensor


def _send(to: socket.socket, message: tuple[Any, ...]) -> None:
    raw = marshal.dumps(message)
    to.sendall(_LENGTH.pack(len(raw)))
    to.sendall(raw)


def _receive(source: socket.socket) -> tuple[Any, ...] | None:
    """Return the next message; None if the other side has ended."""
    head = _exactly(source, _LENGTH.size)
    if head is None:
        return None
    raw = _exactly(source, *_LENGTH.unpack(head))
    if raw is None:
        return None
    message: tuple[Any, ...] = marshal.loads(raw)
    return message


def _exactly(source: socket.socket, size: int) -> bytearray | None:
    raw = bytearray(size)
    view = memoryview(raw)
    while view:
        count = source.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return raw
