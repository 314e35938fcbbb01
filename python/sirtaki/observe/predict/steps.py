"""The steps of a trace: what a rank computes, and when it submits and awaits operations."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

from sirtaki.observe.trace.model import Operation, Rank, Trace
from sirtaki.observe.trace.report import blocked

_NS = 1e-9
_FEWEST_ENDS = 3
# So many steps are replayed.
_MOST_STEPS = 20
# A thread wakes a little after the operation that it awaits has ended.
_WAKING_NS = 50_000


class Event(NamedTuple):
    """A rank submits an operation, or waits for one.

    compute: seconds that it computes before. number: the operation's, counted by submissions.
    submits: None if it waits. ends: whether a step ends.
    """

    compute: float
    number: int
    submits: Operation | None = None
    ends: bool = False


@dataclass(frozen=True)
class Steps:
    """The steps of a job's slowest rank.

    ranks: of each host. step: seconds, as measured. computing: seconds of it in which the rank is
    not blocked. busy: cores that it computes on meanwhile. cores: that it may use, 0: unknown.
    gradients: bytes of float32 that it sums. alone: whether all ranks are on one host.
    """

    events: list[Event]
    ranks: int
    step: float
    computing: float
    busy: float
    cores: int
    gradients: float
    alone: bool


def is_gradient(operation: Operation) -> bool:
    """Return whether compression makes it smaller, and training that exchanges rarely omits it."""
    return operation.kind == "allreduce" and operation.dtype == "float32"


def steps_of(trace: Trace) -> Steps:
    """Return the steps of the rank that computes for longest, which the others wait for.

    Raises:
        ValueError: There are fewer than two whole ones.
    """
    found = [steps for rank in trace.ranks if (steps := _steps(rank, trace.ranks)) is not None]
    if not found:
        number = max((len(one.operations) for one in trace.ranks), default=0)
        names = [each.name for one in trace.ranks for each in one.operations]
        unnamed = [name for name in names if name.startswith("noname.") or name == "farewell"]
        cure = "record more steps"
        if names and len(unnamed) == len(names):
            cure = (
                "name the operations; those of torch.distributed cannot have names: use "
                "hvd.DistributedOptimizer"
            )
        raise ValueError(
            f"no steps in the trace: a rank has {number} operations, and no name of them returns "
            f"{_FEWEST_ENDS} times; {cure}"
        )
    return max(found, key=lambda one: one.computing)


def _steps(rank: Rank, every: Sequence[Rank]) -> Steps | None:
    operations = sorted(
        (one for one in rank.operations if not one.failed and one.submitted >= rank.begun),
        key=lambda one: one.submitted,
    )
    clock = _Clock(blocked(rank, rank.begun, rank.ended))
    places = [clock(one.submitted) for one in operations]
    ends = _ends(operations, places)
    if len(ends) < _FEWEST_ENDS:
        return None
    replayed = ends[-1 - _MOST_STEPS :]
    events = _events(operations, places, _awaited(operations, clock), replayed)
    cut = [operations[end].submitted for end in ends]
    computed = [places[after] - places[before] for before, after in pairwise(ends)]
    hosts = Counter(one.host for one in every)
    within = operations[ends[0] + 1 : ends[-1] + 1]
    computing = clock(rank.ended) - clock(rank.begun)
    return Steps(
        events=events,
        ranks=max(hosts.values()),
        step=median(after - before for before, after in pairwise(cut)) * _NS,
        computing=median(computed) * _NS,
        busy=rank.cpu / max(computing * _NS, 1e-9),
        cores=rank.cores,
        gradients=sum(one.bytes for one in within if is_gradient(one)) / (len(ends) - 1),
        alone=len(hosts) == 1,
    )


class _Clock:
    """A clock that stands still while the rank is blocked."""

    def __init__(self, stretches: Sequence[tuple[int, int]]) -> None:
        self.stretches = stretches
        self._begins = [begun for begun, _ in stretches]
        self._before = [0, *accumulate(ended - begun for begun, ended in stretches)]

    def __call__(self, at: int) -> int:
        number = bisect_left(self._begins, at)
        stood = self._before[number]
        if number and at < self.stretches[number - 1][1]:
            stood -= self.stretches[number - 1][1] - at
        return at - stood


def _ends(operations: Sequence[Operation], places: Sequence[int]) -> list[int]:
    """Return the last operation of each step: the one before the longest computation.

    Between two operations of the most frequent name is one such place.
    """
    counts = Counter(one.key for one in operations)
    if not counts:
        return []
    (name, _) = counts.most_common(1)[0]
    marks = [number for number, one in enumerate(operations) if one.key == name]
    return [
        max(range(first, last), key=lambda number: places[number + 1] - places[number])
        for first, last in pairwise(marks)
    ]


def _awaited(operations: Sequence[Operation], clock: _Clock) -> dict[int, int]:
    """Return, by the clock's time of each wait, the last operation that had ended after it."""
    by_end = sorted(range(len(operations)), key=lambda number: operations[number].ended)
    ends = [operations[number].ended for number in by_end]
    found: dict[int, int] = {}
    for begun, ended in clock.stretches:
        first = bisect_left(ends, begun)
        last = bisect_left(ends, ended + _WAKING_NS)
        if numbers := by_end[first:last]:
            found[clock(begun)] = max(numbers)  # operations run in their order
    return found


def _events(
    operations: Sequence[Operation],
    places: Sequence[int],
    awaited: dict[int, int],
    ends: Sequence[int],
) -> list[Event]:
    """Return the events after the first of these ends of steps, up to the last one.

    Where no wait for a step's last operation was seen, because it had ended by then, the rank waits
    for it when it has submitted it, as optimizers do.
    """
    moments: list[tuple[int, int, int]] = [
        (place, 0, number) for number, place in enumerate(places)
    ]
    moments += [(place, 1, number) for place, number in awaited.items()]
    waits = sorted(awaited.values())
    closing = set(ends[1:])
    found: list[Event] = []
    at = places[ends[0]]
    for place, waits_now, number in sorted(moments):
        if place < places[ends[0]] or number <= ends[0] or number > ends[-1]:
            continue
        compute, at = (place - at) * _NS, place
        ends_now = not waits_now and number in closing
        found.append(Event(compute, number, None if waits_now else operations[number], ends_now))
        if ends_now and number != ends[-1]:
            following = ends[ends.index(number) + 1]
            seen = bisect_left(waits, number)
            if seen == len(waits) or waits[seen] >= following:
                found.append(Event(0.0, number))
    return found
