"""The counters of a job, which only grow although its worlds and processes begin anew."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from sirtaki.hang.answers import Job, numbering
from sirtaki.questions.messages import RankAnswer, Totals, WorldWork

# Processes tell of several worlds: of theirs, and of some that have ended.
_KEPT_WORLDS = 8


class RankLabels(NamedTuple):
    """Whose counters they are; elastic jobs give a rank to other processes and hosts."""

    rank: int
    host: str


class Count(NamedTuple):
    """A counter. what: a field of `Totals`, ``worlds`` or ``processor``. of: its key there."""

    what: str
    of: str


Counts = dict[Count, float]


class JobTotals:
    """Adds up what the ranks have counted in their worlds, of which each begins at 0."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[RankLabels, Counts] = {}
        # The latest counters of each source, by its beginnings.
        self._latest: dict[Hashable, dict[int, Counts]] = {}

    def add(self, job: Job, answers: Sequence[RankAnswer]) -> None:
        """Add what has been counted since the last sample; arguments as for `Looks`."""
        numbers: dict[str, dict[int, int]] = {}
        for answer in answers:
            for world in answer.get("work") or ():
                numbers.setdefault(world["key"], {})[world["rank"]] = answer["rank"]
        with self._lock:
            for answer in answers:
                if answer["pid"]:
                    used = {Count("processor", ""): answer["after"][0]}
                    place = RankLabels(answer["rank"], answer["host"])
                    self._add(place, (answer["host"], answer["pid"]), 0, used)
                for world in answer.get("work") or ():
                    self._add_world(job, world, numbers[world["key"]])
                    # What was counted between the last sample of a world and its end.
                    for ended in world.get("ended", ()):
                        place = RankLabels(ended["rank"], answer["host"])
                        self._add_totals(place, ended["key"], ended["rank"], ended["totals"])

    def _add_world(self, job: Job, world: WorldWork, numbers: Mapping[int, int]) -> None:
        of_job = numbering(world, len(job.ranks), numbers)
        for state in world["ranks"]:
            rank, totals = of_job(state["rank"]), state.get("totals")
            if totals is not None and rank is not None and rank in job.ranks:
                place = RankLabels(rank, job.ranks[rank].host)
                self._add_totals(place, world["key"], state["rank"], totals, world["whole"])

    def _add_totals(
        self, place: RankLabels, key: str, rank: int, totals: Totals, whole: bool = True
    ) -> None:
        self._add(place, (key, rank), totals["began"], _counts(totals, whole))

    def _add(self, place: RankLabels, source: Hashable, began: int, counts: Counts) -> None:
        worlds = self._latest.setdefault(source, {})
        before = worlds.pop(began, {})
        sums = self._sums.setdefault(place, {})
        latest = {}
        for count, value in counts.items():
            # Clocks of waits, read while they change, may be ahead of the next sample.
            latest[count] = max(value, before.get(count, 0.0))
            sums[count] = sums.get(count, 0.0) + latest[count] - before.get(count, 0.0)
        worlds[began] = latest
        if len(worlds) > _KEPT_WORLDS:
            del worlds[next(iter(worlds))]

    def told(self) -> dict[RankLabels, Counts]:
        """Return a copy of all counters."""
        with self._lock:
            return {place: sums.copy() for place, sums in sorted(self._sums.items())}


def _counts(totals: Totals, whole: bool) -> Counts:
    """Return the counters of a world; the steps of frameworks' groups would count again."""
    found: Counts = {
        Count(what, of): number
        for what, numbers in (
            ("operations", totals["operations"]),
            ("bytes", totals["bytes"]),
            ("errors", totals["errors"]),
            ("seconds", totals["seconds"]),
            ("steps", totals["steps"]),
        )
        for of, number in numbers.items()
        if whole or "steps" not in (what, of)
    }
    if whole:
        found[Count("worlds", "")] = 1
    return found
