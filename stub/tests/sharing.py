"""A process that shares device memory or reads that of others, for test_gpu_sharing.

Usage: `sharing.py ROLE …`. It reports in one line of JSON, and exits when its standard input ends.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

SIZE = 4 << 20
FILE_DESCRIPTOR = 1
LAZY_PEER_ACCESS = 1

Handle = ctypes.c_char * 64


class Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("win32", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


class _ByValue(ctypes.Structure):
    """CUipcMemHandle, passed by value."""

    _fields_ = (("bytes", Handle),)


_driver = ctypes.CDLL("libcuda.so.1")


def code(function: str, *arguments: Any) -> int:
    return int(getattr(_driver, function)(*arguments))


def call(function: str, *arguments: Any) -> None:
    got = code(function, *arguments)
    assert got == 0, f"{function}: {got}"


def begin(device: int = 0) -> None:
    context = c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxPushCurrent_v2", context)


def fill(address: c_uint64, value: int, size: int = SIZE) -> None:
    call("cuMemsetD8_v2", address, ctypes.c_ubyte(value), c_size_t(size))
    call("cuCtxSynchronize")


def read(address: c_uint64, size: int = SIZE) -> list[int]:
    """Return the distinct values of all bytes."""
    buffer = (ctypes.c_char * size)()
    call("cuMemcpyDtoH_v2", buffer, address, c_size_t(size))
    return sorted(set(buffer.raw))


def allocate() -> c_uint64:
    address = c_uint64()
    call("cuMemAlloc_v2", byref(address), c_size_t(SIZE))
    return address


def map_handle(handle: c_uint64) -> c_uint64:
    address = c_uint64()
    call("cuMemAddressReserve", byref(address), c_size_t(SIZE), c_size_t(0), c_uint64(0), c_uint64(0))
    call("cuMemMap", address, c_size_t(SIZE), c_size_t(0), handle, c_uint64(0))
    access = Access(Location(1, 0), 3)
    call("cuMemSetAccess", address, c_size_t(SIZE), byref(access), c_size_t(1))
    return address


def create(handles: int) -> c_uint64:
    handle = c_uint64()
    properties = Properties(type=1, handles=handles, location=Location(1, 0))
    granularity = c_size_t()
    call("cuMemGetAllocationGranularity", byref(granularity), byref(properties), 0)
    assert SIZE % granularity.value == 0
    call("cuMemCreate", byref(handle), c_size_t(SIZE), byref(properties), c_uint64(0))
    return handle


def open_handle(text: str) -> tuple[int, c_uint64]:
    _driver.cuIpcOpenMemHandle_v2.argtypes = (c_void_p, _ByValue, ctypes.c_uint)
    address = c_uint64()
    handle = _ByValue()
    ctypes.memmove(byref(handle), bytes.fromhex(text), 64)
    return code("cuIpcOpenMemHandle_v2", byref(address), handle, LAZY_PEER_ACCESS), address


def export(address: c_uint64) -> tuple[int, str]:
    handle = Handle()
    return code("cuIpcGetMemHandle", byref(handle), address), handle.raw.hex()


def maker() -> dict[str, Any]:
    """Memory exported by an IPC handle."""
    begin()
    address = allocate()
    fill(address, 7)
    got, handle = export(address)
    inner, same = export(c_uint64(address.value + SIZE // 2))
    return {"export": got, "handle": handle, "inner": inner, "inner_handle": same, "own": open_handle(handle)[0]}


def free_maker() -> dict[str, Any]:
    """Memory that is freed when a line arrives."""
    begin()
    address = allocate()
    fill(address, 7)
    print(json.dumps({"handle": export(address)[1]}), flush=True)
    sys.stdin.readline()
    return {"free": code("cuMemFree_v2", address)}


def reader(handle: str) -> dict[str, Any]:
    begin()
    got, address = open_handle(handle)
    if got:
        return {"open": got}
    values = read(address)
    fill(address, 9)
    return {
        "open": got,
        "values": values,
        "close": code("cuIpcCloseMemHandle", address),
        "again": code("cuIpcCloseMemHandle", address),
    }


def keeper(handle: str) -> dict[str, Any]:
    """Opens a handle and keeps it."""
    begin()
    got, address = open_handle(handle)
    return {"open": got, "values": read(address)}


def others() -> dict[str, Any]:
    """Memory without an IPC handle."""
    begin()
    managed, pooled = c_uint64(), c_uint64()
    call("cuMemAllocManaged", byref(managed), c_size_t(SIZE), 1)
    call("cuMemAllocAsync", byref(pooled), c_size_t(SIZE), None)
    call("cuCtxSynchronize")
    mapped = map_handle(create(FILE_DESCRIPTOR))
    fill(mapped, 3)
    number = c_int()
    private = create(0)
    return {
        "managed": export(managed)[0],
        "pooled": export(pooled)[0],
        "mapped": export(mapped)[0],
        "values": read(mapped),
        "private": code("cuMemExportToShareableHandle", byref(number), private, FILE_DESCRIPTOR, c_uint64(0)),
    }


def fd_maker(path: str) -> dict[str, Any]:
    """Memory as a file descriptor, sent through a socket."""
    import array
    import socket

    begin()
    handle = create(FILE_DESCRIPTOR)
    address = map_handle(handle)
    fill(address, 5)
    number = c_int(-1)
    call("cuMemExportToShareableHandle", byref(number), handle, FILE_DESCRIPTOR, c_uint64(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as to:
        to.connect(path)
        to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [number.value]))])
    return {"fd": number.value}


def fd_reader(fd: str) -> dict[str, Any]:
    begin()
    handle = c_uint64()
    got = code("cuMemImportFromShareableHandle", byref(handle), c_void_p(int(fd)), FILE_DESCRIPTOR)
    if got:
        return {"import": got}
    address = map_handle(handle)
    values = read(address)
    fill(address, 6)
    call("cuMemUnmap", address, c_size_t(SIZE))
    call("cuMemAddressFree", address, c_size_t(SIZE))
    call("cuMemRelease", handle)
    return {"import": got, "values": values, "again": code("cuMemUnmap", address, c_size_t(SIZE))}


ROLES = {work.__name__: work for work in (maker, free_maker, reader, keeper, others, fd_maker, fd_reader)}

if __name__ == "__main__":
    assert Path(sys.argv[0]).name == "sharing.py"
    print(json.dumps(ROLES[sys.argv[1]](*sys.argv[2:])), flush=True)
    sys.stdin.read()
