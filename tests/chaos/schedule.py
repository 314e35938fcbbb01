"""Which fault comes when: a pure function of the seed, so that a seed replays its schedule."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass

PAUSE_SECONDS = 10.0


class Kind(enum.Enum):
    """What may befall a job. Values are for readers, and for KINDS of `make chaos`."""

    KILLED = "rank killed"
    AGENT_KILLED = "agent killed"
    HOST_GONE = "host gone"
    PAUSED = "rank stopped for 3 s"
    STOPPED = "rank stopped for ever"
    CUT_BRIEFLY = "link cut for 2 s"
    CUT = "link cut for ever"
    CUT_ONE_WAY = "link cut in one direction"
    SLOW = "100 ms and 1 % loss for 10 s"
    RAISES = "rank raises"
    EXITS = "rank exits with 0"
    MEMORY = "rank over its memory limit"


# For how many seconds a fault lasts that is undone; a host that is lost for ever comes back as a
# fresh one.
UNDONE_AFTER = {
    Kind.PAUSED: 3.0,
    Kind.CUT_BRIEFLY: 2.0,
    Kind.CUT: 15.0,
    Kind.CUT_ONE_WAY: 15.0,
    Kind.SLOW: 10.0,
}
OF_A_HOST = frozenset(
    {Kind.AGENT_KILLED, Kind.HOST_GONE, Kind.CUT_BRIEFLY, Kind.CUT, Kind.CUT_ONE_WAY, Kind.SLOW}
)


@dataclass(frozen=True)
class Fault:
    """A fault. at: seconds from the start. pick: chooses the host or the process that it hits."""

    at: float
    kind: Kind
    pick: int

    def chosen(self, count: int) -> int:
        """Which of `count` hosts or processes it hits."""
        return self.pick % count


def schedule(
    seed: int, seconds: float, kinds: Sequence[Kind] = tuple(Kind), pause: float = PAUSE_SECONDS
) -> list[Fault]:
    """Return one fault each `pause` seconds. All kinds come once before any comes again."""
    chance = random.Random(seed)
    faults: list[Fault] = []
    waiting: list[Kind] = []
    for number in range(1, int(seconds / pause) + 1):
        if not waiting:
            waiting = chance.sample(kinds, len(kinds))
        faults.append(Fault(number * pause, waiting.pop(), chance.randrange(1 << 16)))
    return faults
