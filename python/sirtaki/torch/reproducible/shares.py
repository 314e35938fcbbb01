"""The parts of a step that each rank computes: equally many, or as many as suit its speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# A shorter time says little of a rank's speed.
_WINDOW_US = 1_000_000
# Other shares must shorten a step by more than this.
_GAIN = 0.05
# After so many windows a rank without parts gets one, for it may have become faster.
_PATIENCE = 16


class Spent(NamedTuple):
    """What a rank has computed in a window: for how long, in microseconds, and how many parts."""

    us: int
    parts: int


class Shares:
    """Shares out the parts of a step in proportion to the ranks' speeds, the same on all ranks.

    A rank's time for a part is the shorter one of its last two windows, so one window in which it
    was disturbed changes nothing.

    Args:
        parts: Of a step.
        ranks: How many share them.
    """

    def __init__(self, parts: int, ranks: int) -> None:
        self.counts = [len(range(rank, parts, ranks)) for rank in range(ranks)]
        self._parts = parts
        self._windows: list[list[float]] = [[] for _ in range(ranks)]
        self._idle = [0] * ranks

    def update(self, spent: Sequence[Spent]) -> bool:
        """Note what all ranks have spent since the window began.

        Returns:
            Whether the window is over, and another one begins.
        """
        if any(one.us < _WINDOW_US for one, n in zip(spent, self.counts, strict=True) if n):
            return False
        for rank, one in enumerate(spent):
            if one.parts:
                self._windows[rank] = [*self._windows[rank][-1:], one.us / one.parts]
        if all(len(windows) == 2 for windows in self._windows):
            self._decide([min(windows) for windows in self._windows])
        return True

    def _decide(self, us: Sequence[float]) -> None:
        best = self._best(us)
        for rank, count in enumerate(best):
            self._idle[rank] = 0 if count else self._idle[rank] + 1
            if self._idle[rank] > _PATIENCE:
                best[best.index(max(best))] -= 1
                best[rank], self._idle[rank] = 1, 0
                self._windows[rank] = []
                self.counts = best
                return
        if _longest(best, us) < (1 - _GAIN) * _longest(self.counts, us):
            self.counts = best

    def _best(self, us: Sequence[float]) -> list[int]:
        """Return the shares with which the last rank is done soonest."""
        counts = [0] * len(us)
        for _ in range(self._parts):
            rank = min(range(len(us)), key=lambda each: ((counts[each] + 1) * us[each], each))
            counts[rank] += 1
        return counts


def _longest(counts: Sequence[int], us: Sequence[float]) -> float:
    return max(count * each for count, each in zip(counts, us, strict=True))


def dealt(counts: Sequence[int]) -> list[list[int]]:
    """Return the parts of each rank, dealt out in turns: the first ones go to ranks 0, 1, 2."""
    mine: list[list[int]] = [[] for _ in counts]
    left = list(counts)
    rank = part = 0
    while any(left):
        if left[rank]:
            mine[rank].append(part)
            left[rank] -= 1
            part += 1
        rank = (rank + 1) % len(left)
    return mine
