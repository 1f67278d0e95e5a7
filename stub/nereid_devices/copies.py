"""Copies between devices and the server's file of requests, for models that take host tensors.

Each line from the server names an allocation of another process, by its CUDA handle, and a range in
it. A stub's allocation is opened for one copy and then closed: the stub may free it at any time,
and an open handle would keep its memory. An allocation that a client has registered is a region: it
has a number, and stays open from "open" to "close".
"""

import ctypes
import json
import mmap
import os
import sys
from typing import Any, Dict, TextIO, Tuple

from nereid_devices import cuda

#: The inherited file descriptor of the file of requests.
_REQUESTS = 4

_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def command() -> None:
    """Answer lines until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        copier = Copier(_REQUESTS)
    except (cuda.CudaError, OSError) as error:
        _write(replies, {"error": str(error)})
        return
    _write(replies, {})
    for line in sys.stdin:
        try:
            reply = copier.act(json.loads(line))
        except cuda.CudaError as error:
            reply = {"error": str(error), "lost": copier.lost()}
        _write(replies, reply)


class Copier:
    """Copies into and out of a file, all of which is mapped."""

    def __init__(self, file: int) -> None:
        self._driver = cuda.driver()
        size = os.fstat(file).st_size
        self._map = mmap.mmap(file, size)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._size = size
        self._contexts: Dict[str, ctypes.c_void_p] = {}  # by UUID of the device
        self._regions: Dict[int, Tuple[str, ctypes.c_uint64]] = {}  # UUID and address, by number
        self._refused = False  # a device has no context for this process, for a reason other than memory

    def act(self, wanted: Dict[str, Any]) -> Dict[str, Any]:
        """Process one line."""
        if wanted["do"] == "open":
            return self._open(wanted["region"], wanted["device"], wanted["handle"])
        if wanted["do"] == "close":
            uuid, base = self._regions.pop(wanted["region"])
            self._use(uuid)
            self._driver.call("cuIpcCloseMemHandle", base)
        else:
            self._copy(wanted)
        return {}

    def lost(self) -> bool:
        """Return whether a context fails permanently, as after losing its device.

        A new process may help.
        """
        try:
            for context in self._contexts.values():
                self._driver.call("cuCtxSetCurrent", context)
                self._driver.call("cuCtxSynchronize")
        except cuda.CudaError:
            return True
        return self._refused

    def _open(self, number: int, ordinal: int, handle: str) -> Dict[str, Any]:
        """Open memory that a client registered. Errors have the driver's text, for the client."""
        try:
            uuid = self._driver.uuid(ordinal)
            self._use(uuid)
            base = self._opened(handle)
        except cuda.CudaError as error:
            raise cuda.CudaError(error.reason or str(error)) from error
        try:
            where = ctypes.c_int()
            self._driver.call("cuPointerGetAttribute", ctypes.byref(where), ctypes.c_int(_DEVICE_ORDINAL), base)
            if where.value != ordinal:
                raise cuda.CudaError(f"the memory lies on device {where.value}, not on device {ordinal}")
            room = self._room(base)
        except cuda.CudaError:
            self._driver.call("cuIpcCloseMemHandle", base)
            raise
        self._regions[number] = uuid, base
        return {"uuid": uuid, "bytes": room}

    def _room(self, base: ctypes.c_uint64) -> int:
        """Return the number of bytes from an address to the end of its allocation."""
        start, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._driver.call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), base)
        return start.value + size.value - base.value

    def _copy(self, wanted: Dict[str, Any]) -> None:
        """Copy between an allocation and the file."""
        count, at = wanted["bytes"], wanted["at"]
        if count > self._size or at > self._size - count:
            raise cuda.CudaError(f"{count} bytes at {at} lie outside the file of {self._size}")
        if not count:
            return
        if wanted["region"]:
            uuid, base = self._regions[wanted["region"]]
            self._use(uuid)
            self._move(wanted, base)
            return
        self._use(wanted["uuid"])
        base = self._opened(wanted["handle"])
        try:
            room = self._room(base)
            if wanted["offset"] > room or wanted["bytes"] > room - wanted["offset"]:
                # The driver would copy from other memory of this process.
                where = f"{wanted['bytes']} bytes at {wanted['offset']}"
                raise cuda.CudaError(f"{where} lie outside the {room} of the allocation")
            self._move(wanted, base)
        finally:
            self._driver.call("cuIpcCloseMemHandle", base)

    def _move(self, wanted: Dict[str, Any], base: ctypes.c_uint64) -> None:
        there = ctypes.c_uint64(base.value + wanted["offset"])
        here = ctypes.c_void_p(self._address + wanted["at"])
        count = ctypes.c_size_t(wanted["bytes"])
        if wanted["do"] == "write":
            self._driver.call("cuMemcpyHtoD_v2", there, here, count)
            # The copy may return while the bytes are still in transit.
            self._driver.call("cuCtxSynchronize")
        else:
            self._driver.call("cuMemcpyDtoH_v2", here, there, count)

    def _opened(self, handle: str) -> ctypes.c_uint64:
        """Open an allocation of another process in the current context, and return its address."""
        base = ctypes.c_uint64()
        given = _Handle.from_buffer_copy(bytes.fromhex(handle))
        self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), given, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return base

    def _use(self, uuid: str) -> None:
        """Make the context of a device current. It is created on first use."""
        context = self._contexts.get(uuid)
        if context is None:
            context = ctypes.c_void_p()
            device = self._driver.find(uuid)
            try:
                self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._refused = False
            except cuda.CudaError as error:
                self._refused = error.code != _OUT_OF_MEMORY
                raise
            self._contexts[uuid] = context
        self._driver.call("cuCtxSetCurrent", context)


def _write(replies: TextIO, reply: Dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()
