"""Determines which ranks have submitted which operations, and which ranks hold up the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sirtaki.hang.answers import AskedOperation, Job, Rank


@dataclass(frozen=True)
class Missed:
    """An operation that some ranks have not submitted, or in which some hold up the others.

    seconds: for how long. has: the ranks that wait in it. missing: the ranks they wait for. given:
    whether accelerators wait in it for those of the missing ranks.
    """

    asked: AskedOperation
    seconds: float
    has: list[int]
    missing: list[int]
    given: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a job.

    seconds: for how long no operation has completed. missed: waiting operations, longest first.
    holding: the ranks that hold up the others; empty if all wait for something other than a rank.
    moving: whether all of `holding` are still active.
    """

    job: Job
    seconds: float
    missed: list[Missed]
    holding: list[Rank]
    moving: bool

    @property
    def waiting(self) -> list[Rank]:
        """Return the ranks that others hold up."""
        held = {rank for one in self.missed for rank in one.has}
        return [self.job.ranks[rank] for rank in sorted(held)]


def analyse(job: Job) -> Diagnosis:
    """Determine which ranks hold up the others."""
    found = sorted(_missed(job), key=lambda one: -one.seconds)
    missed = [one for one in found if not one.asked.patient] or found
    # No other operation can keep an accelerator from completing one.
    first = [one for one in missed if one.given] or missed
    blamed = {rank for one in first for rank in one.missing}
    known = [job.ranks[rank] for rank in sorted(blamed) if rank in job.ranks]
    # A rank that waits itself is held up by another one, unless all wait.
    holding = [one for one in known if not one.waits or not _runs(one)] or known
    moving = bool(holding) and all(one.moved is True and _runs(one) for one in holding)
    return Diagnosis(job, job.stuck, missed, holding, moving)


def _runs(one: Rank) -> bool:
    return not (one.stopped or one.traced or one.silent or one.gone)


def _missed(job: Job) -> Iterable[Missed]:
    asked: dict[AskedOperation, list[Rank]] = {}
    for one in job.ranks.values():
        for each in one.open:
            asked.setdefault(each.asked, []).append(one)
    joined = _joined(job)
    for what, ranks in asked.items():
        has = sorted(one.rank for one in ranks)
        opened = [each for one in ranks for each in one.open if each.asked == what]
        seconds = max(each.seconds for each in opened)
        sets = {each.set for each in opened if each.set is not None}
        members = job.members.get((what.world, min(sets, default=0)), [])
        others = sorted({*members} - {*has} - joined.get(what.world, set()))
        if what.kind in ("send", "receive"):
            peers = {each.peer for each in opened if each.peer is not None and each.peer >= 0}
            yield Missed(what, seconds, has, sorted(peers))
        elif any(each.stage == "submitted" for each in opened):
            yield Missed(what, seconds, has, others)
        elif any(each.stage == "under way" and each.waits for each in opened):
            yield Missed(what, seconds, *_in_the_middle(job, what, ranks))
        elif all(each.stage == "handed over" for each in opened):
            known = [rank for rank in others if rank in job.ranks and job.ranks[rank].known]
            yield Missed(what, seconds, has, known, given=bool(known))


def _joined(job: Job) -> dict[str, set[int]]:
    """Return the ranks of each world that have joined and so take part in all its operations."""
    found: dict[str, set[int]] = {}
    for one in job.ranks.values():
        for each in one.open:
            if each.asked.kind == "join":
                found.setdefault(each.asked.world, set()).add(one.rank)
    return found


def _in_the_middle(
    job: Job, what: AskedOperation, ranks: Sequence[Rank]
) -> tuple[list[int], list[int]]:
    """Return the ranks that wait in a stuck operation, and those they ultimately wait for."""
    waits = {one.rank: each for one in ranks for each in one.open if each.asked == what}
    held = sorted(rank for rank, each in waits.items() if each.waits)
    peers = {each.peer for each in waits.values() if each.waits and each.peer is not None}
    last = sorted(
        peer
        for peer in peers
        if peer not in held or (peer in job.ranks and not job.ranks[peer].waits)
    )
    stopped = [one.rank for one in ranks if not _runs(one)]
    return [rank for rank in held if rank not in stopped], stopped or last or sorted(peers - {-1})
