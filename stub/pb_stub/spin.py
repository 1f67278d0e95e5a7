"""Whether to look for the next frame for a moment before sleeping. The rules are docs/protocol.md's, "Spinning"."""

from __future__ import annotations

_SHORTEST_PAUSE = 4
_LONGEST_PAUSE = 1024
_CLEAN_SPINS = 64
#: A wait counts at most so many budgets, so that one long pause does not keep a burst after it from spinning.
_LONGEST_WAIT = 8

#: A yield that takes longer gave the core to another thread, which keeps it. Half of the supervisor's limit, at most:
#: where both sides are disturbed the stub gives up first.
SLOW_YIELD_NS = 50_000


class Spin:
    """Decides before each wait, and learns from it."""

    __slots__ = ("_average", "_clean", "_next_pause", "_pause", "budget")

    def __init__(self, budget_ns: int) -> None:
        self.budget = budget_ns
        self._average = 0
        self._pause = 0  # waits to sit out
        self._next_pause = _SHORTEST_PAUSE
        self._clean = 0

    def worthwhile(self) -> bool:
        """Asked once for each wait: is the next frame likely to come within the budget?"""
        if self._pause:
            self._pause -= 1
            return False
        return self._average < self.budget

    def waited(self, ns: int) -> None:
        """Learn how long it took until the frame was published, not counting the time to wake up."""
        longest = self.budget * _LONGEST_WAIT
        self._average += (min(max(ns, 0), longest) - self._average) >> 3

    def slow(self) -> None:
        """A yield was slow: sit out some waits, more each time."""
        self._pause = self._next_pause
        self._next_pause = min(self._next_pause * 2, _LONGEST_PAUSE)
        self._clean = 0

    def clean(self) -> None:
        """A spin passed without a slow yield."""
        self._clean += 1
        if self._clean == _CLEAN_SPINS:
            self._clean = 0
            self._next_pause = max(self._next_pause // 2, _SHORTEST_PAUSE)
