"""Order of memory accesses between processes."""

from __future__ import annotations

import os
import threading

#: Whether other processes may see plain stores of this processor in another order.
WEAKLY_ORDERED = os.uname().machine not in ("x86_64", "i686")


class Fence:
    """Orders plain stores and loads on processors that reorder them.

    Operations before the release of a lock stay before it, operations after its acquisition stay
    after it, and a lock is acquired only after its release.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        self._lock.release()
        self._lock.acquire()
