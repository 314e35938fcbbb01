"""What the ranks of this host are doing, also when they are stuck, stopped or dead."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sirtaki import _core
from sirtaki.core.state import current_world


@dataclass(frozen=True)
class Waiting:
    """What an operation under way waits for.

    phase: what the peer is to do: ``write`` or ``read`` (be done with) a chunk in shared memory,
    ``leave`` an earlier operation, ``send`` or ``take`` bytes between hosts. peer: its rank. chunk:
    its number in the operation, None where it has none. seconds: for how long.
    """

    phase: str
    peer: int
    chunk: int | None
    seconds: float


@dataclass(frozen=True)
class Operation:
    """An operation of a rank. Times are seconds ago, None where it has not come so far.

    number: counted from 1 on its rank. kind, name: as messages show them, the name cut to 40
    bytes. stage: ``submitted``, ``agreed`` by all ranks, ``under way``, ``done`` or ``failed``.
    waits: None where it does not wait, or not for longer than a rank polls; of operations that run
    as one batch the first one tells.
    """

    number: int
    kind: str
    name: str
    process_set: int
    bytes: int
    dtype: str
    stage: str
    submitted: float | None
    agreed: float | None
    begun: float | None
    ended: float | None
    waits: Waiting | None

    def __str__(self) -> str:
        ages = (
            ("submitted", self.submitted),
            ("agreed", self.agreed),
            ("begun", self.begun),
            ("ended", self.ended),
        )
        times = [f"{what} {age:.1f} s ago" for what, age in ages if age is not None]
        text = f"{self.number} {self.kind} {self.name!r} ({self.bytes} bytes): {self.stage}"
        text = ", ".join([text, *times])
        if self.waits is None:
            return text
        waits = self.waits
        chunk = "" if waits.chunk is None else f" chunk {waits.chunk}"
        return f"{text}; waits {waits.seconds:.1f} s for rank {waits.peer} to {waits.phase}{chunk}"


@dataclass(frozen=True)
class RankState:
    """A rank's operations, oldest first: all that have not ended, and the latest others."""

    rank: int
    operations: list[Operation] = field(default_factory=list)

    @property
    def open(self) -> list[Operation]:
        """Return those that have not ended."""
        return [one for one in self.operations if one.stage not in ("done", "failed")]

    def __str__(self) -> str:
        lines = [f"rank {self.rank}: {len(self.open)} open", *map(str, self.operations)]
        return "\n  ".join(lines)


def snapshot(last: int = 16) -> list[RankState]:
    """Return what every rank of this host is doing.

    It waits for nobody: call it from any thread or signal handler while this rank is stuck in an
    operation. Ranks that are stopped or dead are shown as they were.

    Args:
        last: How many operations that have ended to show of each rank; it remembers 4096.

    Raises:
        ValueError: Before ``init()``, or `last` is negative.
    """
    if last < 0:
        raise ValueError(f"last={last} must not be negative")
    ranks = current_world().engine.snapshot(last)
    now = time.monotonic_ns()
    return [RankState(rank, [_operation(one, now) for one in found]) for rank, found in ranks]


def _operation(one: _core.Recorded, now: int) -> Operation:
    waits = None
    if one.phase:
        chunk = None if one.chunk < 0 else one.chunk
        waits = Waiting(one.phase, one.peer, chunk, (now - one.waits_since_ns) * 1e-9)
    _, _, name = one.shown.partition(" ")
    return Operation(
        number=one.number,
        kind=one.kind,
        name=name[1:-1],
        process_set=one.set,
        bytes=one.bytes,
        dtype=one.dtype,
        stage=one.stage,
        submitted=_age(one.submitted_ns, now),
        agreed=_age(one.agreed_ns, now),
        begun=_age(one.begun_ns, now),
        ended=_age(one.ended_ns, now),
        waits=waits,
    )


def _age(then: int, now: int) -> float | None:
    return (now - then) * 1e-9 if then else None
