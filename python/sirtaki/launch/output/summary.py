"""The summary line of a job: its duration, the share of computing, the slowest rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_NOTABLE = 0.01


class Times(NamedTuple):
    """How a rank spent its time between joining the others and leaving.

    seconds: in total. computing: those in which no thread waited in our calls, None if a framework
    waits in its own code. operations: how many there were.
    """

    seconds: float
    computing: float | None
    operations: int


def times_of(told: bytes) -> Times:
    """Parse what a process reported. Raises ValueError."""
    seconds, exposed, calls, operations = map(float, told.split())
    # A rank that waited for few results in our calls waited for the others in its framework.
    computing = max(0.0, seconds - exposed) if 2 * calls >= max(operations, 1) else None
    return Times(seconds, computing, int(operations))


def summary(told: Sequence[bytes | None]) -> str:
    """Return the summary line of a job that succeeded, "" if nothing is known.

    Args:
        told: The report of each rank, None for a rank without one.
    """
    try:
        ranks = [times_of(each) for each in told if each is not None]
    except ValueError:
        return ""  # of another version
    if len(ranks) < len(told) or len(told) < 2 or not any(one.operations for one in ranks):
        return ""
    longest = max(one.seconds for one in ranks)
    text = f"{len(ranks)} ranks, {_seconds(longest)}"
    computing = [one.computing for one in ranks if one.computing is not None]
    if len(computing) < len(ranks) or longest <= 0:
        return text
    share = sum(computing) / sum(one.seconds for one in ranks)
    return f"{text}, {100 * share:.0f} % computing" + _slowest(computing)


def elastic_summary(ranks: int, seconds: float, worlds: int) -> str:
    """Return the summary line of an elastic job that succeeded.

    Args:
        ranks: Of its last world.
        seconds: Since the first world was formed.
        worlds: How many it had.
    """
    plural = "" if worlds == 1 else "s"
    return f"{ranks} rank{'' if ranks == 1 else 's'}, {_seconds(seconds)}, {worlds} world{plural}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.{0 if seconds >= 10 else 1}f} s"


def _slowest(computing: Sequence[float]) -> str:
    """Return which rank computed longest, and by how much longer than the others' average."""
    most = max(computing)
    rest = (sum(computing) - most) / (len(computing) - 1)
    if most <= 0 or (rest > 0 and most / rest - 1 < _NOTABLE):
        return ""
    more = f" (+{100 * (most / rest - 1):.0f} %)" if rest > 0 else ""
    return f", slowest rank {computing.index(most)}{more}"
