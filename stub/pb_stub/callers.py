"""The batch on whose behalf the model's code makes BLS requests."""

from __future__ import annotations

from contextvars import ContextVar

#: The number of the batch that a coroutine was started for, 0 outside of such coroutines. Tasks
#: inherit it, threads do not.
BATCH: ContextVar[int] = ContextVar("pb_stub_batch", default=0)
