"""Replays the steps of a trace with another network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from sirtaki.observe.predict.exchange import Setting, seconds_of, sent_bytes
from sirtaki.observe.predict.steps import Event
from sirtaki.observe.trace.model import Operation

# Operations that are ready together are summed as one, up to so many bytes.
_FUSION_BYTES = 128 << 20
# Until a thread with a core of its own runs when what it waits for is there.
_WAKING_SECONDS = 30e-6
# So many times as much does moving take where hosts share cores: who waits polls on them.
_POLLING = 4.0


class Cores(NamedTuple):
    """The cores of a rank.

    has: how many it may use. busy: how many it computes on.
    """

    has: float
    busy: float

    def speed(self, computes: bool) -> float:
        """Return the share of a core that the thread gets which moves data."""
        core = min(1.0, self.has)
        alone = core / (1.0 + _POLLING * (1.0 - core))
        return min(alone, self.has / (1.0 + (self.busy if computes else 0.0)))

    @property
    def waking(self) -> float:
        """Seconds until a thread runs when what it waits for is there."""
        return _WAKING_SECONDS / min(1.0, self.has)

    @property
    def stretched(self) -> float:
        """How many times as long computation takes as on cores of its own."""
        alone = 1.0 + min(self.busy, 1.0) * (1.0 / min(1.0, self.has) - 1.0)
        return max(alone, self.busy / self.has)

    @property
    def taken(self) -> float:
        """The part of that thread's work that computation waits for."""
        if self.busy <= 0:
            return 0.0
        missing = min(1.0, max(0.0, self.busy + 1.0 - self.has))
        return missing * min(self.busy, 1.0 / self.busy)


class Sent(NamedTuple):
    """An operation on its way.

    size: bytes as they are sent. cost: seconds of a core for each of them. before: seconds of a
    core that the rank computes before it submits the operation.
    """

    kind: str
    size: float
    cost: float
    before: float = 0.0


@dataclass
class _Batch:
    numbers: list[int]
    ends: float
    load: float


class _Replay:
    """A rank's main thread, and the operations that it has submitted. now: seconds."""

    def __init__(self, setting: Setting, cores: Cores) -> None:
        self.now = 0.0
        self._setting = setting
        self._cores = cores
        self._half = setting.link.round_trip / 2 + setting.waking
        self._queue: deque[tuple[float, int, Sent]] = deque()
        self._batch: _Batch | None = None
        self._free = 0.0
        self._open: set[int] = set()

    def submit(self, number: int, sent: Sent) -> None:
        # Rank 0 learns of it, and lets all ranks begin.
        self._queue.append((self.now + self._half, number, sent))
        self._open.add(number)

    def compute(self, left: float) -> None:
        while left > 0:
            until = self._next(True)
            rate = 1.0 - (self._batch.load if self._batch else 0.0)
            if until is None or self.now + left / rate <= until:
                self.now += left / rate
                return
            left -= max(0.0, until - self.now) * rate
            self.now = max(self.now, until)
            self._turn(True)

    def wait(self, number: int) -> None:
        while number in self._open:
            until = self._next(False)
            assert until is not None
            self.now = max(self.now, until)
            self._turn(False)
            if number not in self._open:
                self.now += self._setting.waking

    def _next(self, computes: bool) -> float | None:
        """Return when a batch begins or ends next."""
        if self._batch is None and self._queue and self._begins() <= self.now:
            self._turn(computes)
        if self._batch is not None:
            return self._batch.ends
        return self._begins() if self._queue else None

    def _begins(self) -> float:
        return max(self._free, self._queue[0][0]) + self._half

    def _turn(self, computes: bool) -> None:
        """Begin or end a batch, as is due now."""
        if self._batch is not None:
            self._free = self._batch.ends
            self._open.difference_update(self._batch.numbers)
            self._batch = None
        elif self._queue:
            self._begin(self._begins(), computes)

    def _begin(self, at: float, computes: bool) -> None:
        decided = at - self._half
        numbers, size = list[int](), 0.0
        kind, cost = self._queue[0][2].kind, self._queue[0][2].cost
        while self._queue:
            ready, number, sent = self._queue[0]
            fits = not numbers or (kind == "allreduce" and size + sent.size <= _FUSION_BYTES)
            if ready > decided or (sent.kind, sent.cost) != (kind, cost) or not fits:
                break
            self._queue.popleft()
            numbers.append(number)
            size += sent.size
        slowed = self._setting._replace(cost=cost / self._cores.speed(computes))
        took = seconds_of(kind, size, slowed)
        work = sent_bytes(kind, size, slowed.hosts, slowed.ranks) / slowed.ranks * cost
        load = min(0.99, work / took * self._cores.taken) if took > 0 else 0.0
        self._batch = _Batch(numbers, at + took, load)


def replay(
    events: Sequence[Event],
    setting: Setting,
    cores: Cores,
    sent: Callable[[Operation], Sent | None],
    slower: float = 1.0,
) -> float:
    """Return the seconds of a step.

    Args:
        events: Of a rank, over some steps.
        setting: Where operations run; their cost is what `sent` says.
        cores: What the rank computes and moves data on.
        sent: Returns what is sent for an operation; None: it is left out.
        slower: How many times as long the rank computes.
    """
    run = _Replay(setting, cores)
    ends = [0.0]
    for event in events:
        run.compute(event.compute * slower * cores.stretched)
        if event.submits is None:
            run.wait(event.number)
        elif (what := sent(event.submits)) is not None:
            run.compute(what.before / min(1.0, cores.has))
            run.submit(event.number, what)
        if event.ends:
            ends.append(run.now)
    return median(after - before for before, after in pairwise(ends))
