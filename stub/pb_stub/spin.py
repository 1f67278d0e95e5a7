"""Decides whether to spin for the next frame before sleeping.

See "Spinning" in docs/protocol.md.
"""

from __future__ import annotations

_SHORTEST_PAUSE = 4
_LONGEST_PAUSE = 1024
_CLEAN_SPINS = 64
#: Maximum weight of a wait, in budgets, so that one long pause does not prevent spinning in the
#: next burst.
LONGEST_WAIT = 8

#: A slower yield gave the core to another thread, which keeps it. At most half of the supervisor's
#: limit: if both sides are disturbed, the stub gives up first.
SLOW_YIELD_NS = 50_000

#: The longest time without signal handlers.
SPIN_STEP_NS = 1_000_000


class Spin:
    """Decides before each wait, and learns from it."""

    __slots__ = ("_average", "_clean", "_next_pause", "_pause", "budget")

    def __init__(self, budget_ns: int) -> None:
        self.budget = budget_ns
        self._average = 0
        self._pause = 0  # number of waits without spinning
        self._next_pause = _SHORTEST_PAUSE
        self._clean = _CLEAN_SPINS  # clean spins until the next pause gets shorter

    def worthwhile(self) -> bool:
        """Return whether the next frame is likely within the budget. Called once for each wait."""
        if self._pause:
            self._pause -= 1
            return False
        return self._average < self.budget

    def waited(self, ns: int) -> None:
        """Record the time until the frame was published, without the time to wake up."""
        longest = self.budget * LONGEST_WAIT
        if ns > longest:
            ns = longest
        elif ns < 0:
            ns = 0
        self._average += (ns - self._average) >> 3

    def slow(self) -> None:
        """Record a slow yield: do not spin for some waits, more each time."""
        self._pause = self._next_pause
        self._next_pause = min(self._next_pause * 2, _LONGEST_PAUSE)
        self._clean = _CLEAN_SPINS

    def clean(self) -> None:
        """Record a spin without a slow yield."""
        self._clean -= 1
        if not self._clean:
            self._clean = _CLEAN_SPINS
            self._next_pause = max(self._next_pause // 2, _SHORTEST_PAUSE)
