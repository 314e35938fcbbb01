"""Who has asked for what, who has not, and who holds up the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sirtaki.hang.answers import AskedOperation, Job, Rank
from sirtaki.records import dataclass


@dataclass(frozen=True)
class Missed:
    """An operation that some ranks have not asked for, or where some hold up the others.

    seconds: for how long. has: who waits in it. missing: for whom.
    """

    asked: AskedOperation
    seconds: float
    has: list[int]
    missing: list[int]


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a job.

    seconds: for how long nothing has ended. missed: what waits, longest first. holding: who holds
    up the others; none where all wait for something else than a rank. moving: whether all of those
    still do something.
    """

    job: Job
    seconds: float
    missed: list[Missed]
    holding: list[Rank]
    moving: bool

    @property
    def waiting(self) -> list[Rank]:
        """Return the ranks that are held up."""
        held = {rank for one in self.missed for rank in one.has}
        return [self.job.ranks[rank] for rank in sorted(held)]


def analyse(job: Job) -> Diagnosis:
    """Find out who holds up whom."""
    found = sorted(_missed(job), key=lambda one: -one.seconds)
    missed = [one for one in found if not one.asked.patient] or found
    blamed = {rank for one in missed for rank in one.missing}
    known = [job.ranks[rank] for rank in sorted(blamed) if rank in job.ranks]
    # Who waits itself is held up by somebody else, unless all do.
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
        if what.kind in ("send", "receive"):
            peers = {each.peer for each in opened if each.peer is not None and each.peer >= 0}
            yield Missed(what, seconds, has, sorted(peers))
        elif any(each.stage == "submitted" for each in opened):
            sets = {each.set for each in opened if each.set is not None}
            members = job.members.get((what.world, min(sets, default=0)), [])
            yield Missed(
                what, seconds, has, sorted({*members} - {*has} - joined.get(what.world, set()))
            )
        elif any(each.stage == "under way" and each.waits for each in opened):
            yield Missed(what, seconds, *_in_the_middle(job, what, ranks))
        elif all(each.stage == "handed over" for each in opened):
            yield Missed(what, seconds, has, [])


def _joined(job: Job) -> dict[str, set[int]]:
    """Who takes part in all operations of a world without asking for them."""
    found: dict[str, set[int]] = {}
    for one in job.ranks.values():
        for each in one.open:
            if each.asked.kind == "join":
                found.setdefault(each.asked.world, set()).add(one.rank)
    return found


def _in_the_middle(
    job: Job, what: AskedOperation, ranks: Sequence[Rank]
) -> tuple[list[int], list[int]]:
    """Who waits in an operation whose data do not move, and for whom in the end."""
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
