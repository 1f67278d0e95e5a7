"""The cost of tensors on a CUDA device: `make bench-gpu`. Compare ratios within one run.

first use   a process up to its first tensor on the device, next to cuInit and a context alone
to host     copying a tensor to memory in use, like a block of the arena, next to torch's `.cpu()`
import      `from_dlpack` of a torch tensor, with its stream, and the release of the tensor
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
SEARCH = [str(ROOT / "pyutils"), str(ROOT / "stub")]
sys.path[:0] = SEARCH

ALONE = """
import ctypes, time
began = time.perf_counter()
library = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert library.cuInit(0) == 0
assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
print(time.perf_counter() - began)
"""

FIRST = """
import ctypes, time
from c_python_backend_utils import dlpack
began = time.perf_counter()
from c_python_backend_utils import cuda
cuda.device(0).stream()
print(time.perf_counter() - began)
"""


def timed(work: Callable[[], Any], times: int = 15) -> float:
    """The median of several runs, in seconds."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def process(script: str) -> float:
    search = os.pathsep.join(SEARCH)
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": search}, stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout)


def first_use() -> None:
    process(ALONE)  # the first process wakes the driver
    alone, ours = [], []
    for _ in range(7):
        alone.append(process(ALONE))
        ours.append(process(FIRST))
    a, b = statistics.median(alone), statistics.median(ours)
    print(f"first use     cuInit and context {a * 1e3:8.1f} ms   ours {b * 1e3:8.1f} ms   ratio {b / a:.3f}")


def copies(torch: Any) -> None:
    import numpy as np
    from c_python_backend_utils.memory import DeviceMemory
    from triton_python_backend_utils import Tensor

    def memory_of(tensor: Tensor) -> DeviceMemory:
        data: Any = tensor._data
        assert isinstance(data, DeviceMemory)
        return data

    for size in (4, 4 << 10, 1 << 20, 64 << 20):
        there = torch.zeros(size, dtype=torch.uint8, device="cuda")
        block = np.ones(size, np.uint8)
        address = block.__array_interface__["data"][0]
        memory = memory_of(Tensor.from_dlpack("X", there))
        ours = timed(lambda memory=memory, address=address: memory.copy_to_host(address))  # type: ignore[misc]
        theirs = timed(lambda there=there: there.cpu())  # type: ignore[misc]
        reused = torch.ones(size, dtype=torch.uint8)
        into = timed(lambda there=there, reused=reused: reused.copy_(there))  # type: ignore[misc]
        print(
            f"to host {size:10} B   ours {ours * 1e6:9.1f} µs   .cpu() {theirs * 1e6:9.1f} µs   "
            f"into used memory {into * 1e6:9.1f} µs   ours/.cpu() {ours / theirs:.3f}   "
            f"{size / ours / 1e9:6.2f} GB/s"
        )
    there = torch.zeros(1024, device="cuda")
    imported = timed(lambda: Tensor.from_dlpack("X", there), 200)
    exported = timed(lambda: torch.from_dlpack(Tensor.from_dlpack("X", there)), 200)
    print(f"import        from_dlpack {imported * 1e6:8.1f} µs   and back to torch {exported * 1e6:8.1f} µs")


def main() -> None:
    first_use()
    try:
        import torch
    except ImportError:
        print("torch is not here: copies are not measured")
        return
    print(f"device        {torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    copies(torch)


if __name__ == "__main__":
    main()
