"""Copies tensors from devices into the server's memory for requests, for models that take them on the host.

Each line from the server names an allocation of another process, by CUDA's handle, and a range of it. An allocation is
opened for one copy and closed behind it: its maker may free it at any time, and what is open here would keep it.
"""

import ctypes
import json
import mmap
import os
import sys
from typing import Any, Dict, TextIO

from nereid_devices import cuda

#: The descriptor of the file of requests, which this process has inherited.
_REQUESTS = 4

_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def command() -> None:
    """Answer until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        copier = Copier(_REQUESTS)
    except (cuda.CudaError, OSError) as error:
        _write(replies, str(error))
        return
    _write(replies, "")
    for line in sys.stdin:
        try:
            copier.copy(json.loads(line))
            text = ""
        except cuda.CudaError as error:
            text = str(error)
        _write(replies, text)


class Copier:
    """Copies into a file that is mapped whole."""

    def __init__(self, file: int) -> None:
        self._driver = cuda.driver()
        size = os.fstat(file).st_size
        self._map = mmap.mmap(file, size)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._size = size
        self._contexts: Dict[str, ctypes.c_void_p] = {}  # by UUID of the device

    def copy(self, wanted: Dict[str, Any]) -> None:
        """Act on one line."""
        count, to = wanted["bytes"], wanted["to"]
        if count > self._size or to > self._size - count:
            raise cuda.CudaError(f"{count} bytes at {to} lie outside the file of {self._size}")
        if not count:
            return
        self._driver.call("cuCtxSetCurrent", self._context(wanted["uuid"]))
        handle = _Handle.from_buffer_copy(bytes.fromhex(wanted["handle"]))
        base = ctypes.c_uint64()
        self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), handle, ctypes.c_uint(_LAZY_PEER_ACCESS))
        try:
            source = ctypes.c_uint64(base.value + wanted["offset"])
            target = ctypes.c_void_p(self._address + to)
            self._driver.call("cuMemcpyDtoH_v2", target, source, ctypes.c_size_t(count))
        finally:
            self._driver.call("cuIpcCloseMemHandle", base)

    def _context(self, uuid: str) -> ctypes.c_void_p:
        """The context of a device, made with its first copy."""
        context = self._contexts.get(uuid)
        if context is None:
            context = ctypes.c_void_p()
            self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._driver.find(uuid))
            self._contexts[uuid] = context
        return context


def _write(replies: TextIO, error: str) -> None:
    replies.write(json.dumps({"error": error}) + "\n")
    replies.flush()
