"""Finds the line in which a rank loses the time for which the others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

# By line, the share of the time that a rank's main thread spent in it without waiting.
Shares = Mapping[str, float]


def slow_line(ranks: Mapping[int, Shares], rank: int, late: float) -> tuple[str, float]:
    """Return the line in which a rank spends more time than the others do.

    Lines of one function count together, because a slow function may be slow in many of them.

    Args:
        ranks: The shares of each rank.
        rank: The late one.
        late: The share of the time for which the others wait for it.

    Returns:
        A line in the format of `own_line`, and the share of the time by which its function
        takes longer than on other ranks; "" if none explains half of `late`.
    """
    others = [_of_functions(shares) for number, shares in ranks.items() if number != rank]
    own = ranks.get(rank, {})
    more = {
        function: share - median(each.get(function, 0.0) for each in others)
        for function, share in _of_functions(own).items()
        if others
    }
    slow = max(more, key=more.__getitem__, default="")
    if not slow or more[slow] < late / 2:
        return "", 0.0
    return max((line for line in own if _function(line) == slow), key=own.__getitem__), more[slow]


def _of_functions(shares: Shares) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for line, share in shares.items():
        found[_function(line)] += share
    return found


def _function(line: str) -> str:
    """Return file and function of a line such as `train.py:9 in load: read()`."""
    place, _, rest = line.partition(" in ")
    return f"{place.rpartition(':')[0]} {rest.partition(':')[0]}"
