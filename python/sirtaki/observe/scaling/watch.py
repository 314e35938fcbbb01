"""What the ranks of a running job do, seen from outside: looks, and what lies between two."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sirtaki.hang.collect import FIGURES, collect
from sirtaki.hang.exposed import exposed_share
from sirtaki.launch.questions.asked import ask_launcher, launchers
from sirtaki.rendezvous.host.presence import present

_RATES = ("step", "communicating", "waiting", "bytes", "operations")
_OWN = 4  # where a frame of `hang.place` says whether it is the user's own


@dataclass(frozen=True)
class Sample:
    """One rank at one moment.

    completed: operations so far. cpu, queued: seconds so far of its threads on a core, and of the
    one that was ready for longest without one. awake: of its main thread either. step,
    communicating, waiting, bytes: as `sirtaki top` has them, None where it cannot tell. place: the
    user's line where its main thread is, "" where an operation is open. blocked: what
    `exposed_share` compares.
    """

    completed: int
    cpu: float
    queued: float
    awake: float
    step: float | None
    communicating: float | None
    waiting: float | None
    bytes: float | None
    operations: float | None
    place: str
    host: str = ""
    blocked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """The ranks of a job at one moment.

    busy, cores: of each host the seconds of all its cores so far, and how many it has.
    """

    at: float
    busy: Mapping[str, float]
    ranks: Mapping[int, Sample]
    cores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RankFigures:
    """One rank over a time.

    communicating, waiting: shares of it with an operation open, and with one that others have not
    asked for. exposed: share blocked in our calls, None where that is not seen. cores: how many it
    used. queued, idle: shares in which it was ready without a core, and did nothing at all.
    bytes: of a step. place: the user's line where it was most
    often without an open operation.
    """

    rank: int
    communicating: float
    waiting: float
    cores: float
    queued: float
    idle: float
    bytes: float
    place: str
    exposed: float | None = None


def job_below(launcher: int) -> str | None:
    """Return the name of the job that a launcher here has started, None so far."""
    for one in present():
        if _is_below(one.record.pid, launcher):
            return one.record.job
    found = (job for job, pid in launchers().items() if _is_below(pid, launcher))
    return next(found, None)


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def look(job: str) -> Look:
    """Ask the ranks of a job: those of all hosts where its launcher is here and answers."""
    told = ask_launcher(job, FIGURES) or collect(job, FIGURES)
    # Each rank knows all of its host, so that one which cannot answer now is known too.
    states = {
        state["rank"]: state
        for one in told
        for world in one.get("work") or ()
        if world["whole"]
        for state in world["ranks"]
        if "at" in state
    }
    known = [one for one in told if one["rank"] in states]
    samples = {one["rank"]: _sample(one, states[one["rank"]]) for one in known}
    busy = {one["host"]: float(one["scheduled"]["busy"]) for one in known}
    cores = {one["host"]: float(one["scheduled"]["cores"]) for one in known}
    return Look(time.monotonic(), busy, samples, cores)


def _place(told: Mapping[str, Any]) -> str:
    open_now = any(
        state["open"]
        for world in told.get("work") or ()
        for state in world["ranks"]
        if state["rank"] == told["rank"]
    )
    if open_now:
        return ""
    own = [frame for frame in told.get("place", {}).get("stack", ()) if frame[_OWN]]
    if not own:
        return ""
    file, line, function, text, _ = own[0]
    return f"{Path(file).name}:{line} in {function}" + (f": {text}" if text else "")


def _sample(told: Mapping[str, Any], state: Mapping[str, Any]) -> Sample:
    kernel = told["scheduled"]
    return Sample(
        completed=state["completed"],
        cpu=kernel["cpu"],
        queued=kernel["queued"],
        awake=kernel["awake"],
        **{name: state.get(name) for name in _RATES},
        place=_place(told),
        host=told["host"],
        blocked=state,
    )


def step_seconds(looks: Sequence[Look]) -> float | None:
    """Return the time of a step, the median of all ranks and looks; None where none tells it.

    Where no operation has a name that comes again, each of them counts as a step.
    """
    every = [one for each in looks for one in each.ranks.values()]
    steps = [one.step for one in every if one.step]
    steps = steps or [1.0 / one.operations for one in every if one.operations]
    return median(steps) if steps else None


def steps_done(looks: Sequence[Look]) -> float:
    """Return how many steps lie between the first look and the last one."""
    if len(looks) < 2 or not looks[0].ranks or not looks[-1].ranks:
        return 0.0
    rank = min(looks[0].ranks)
    first, last = looks[0].ranks[rank], looks[-1].ranks.get(rank)
    if last is None:
        return 0.0
    of_a_step = (last.operations or 0.0) * (last.step or 0.0)
    return (last.completed - first.completed) / max(1.0, of_a_step)


def figures(looks: Sequence[Look]) -> list[RankFigures]:
    """Return what each rank did between the first look and the last one at it."""
    found = []
    for rank in sorted({rank for each in looks for rank in each.ranks}):
        own = [(each.at, each.ranks[rank]) for each in looks if rank in each.ranks]
        if len(own) > 1 and own[-1][0] > own[0][0]:
            found.append(_figures(rank, own))
    return found


def _figures(rank: int, own: Sequence[tuple[float, Sample]]) -> RankFigures:
    (begun, first), (ended, last) = own[0], own[-1]
    span = ended - begun
    samples = [sample for _, sample in own]
    communicating = _mean([one.communicating for one in samples])
    cores = max(0.0, last.cpu - first.cpu) / span
    awake = max(cores, (last.awake - first.awake) / span)
    places = [one.place for one in samples if one.place]
    return RankFigures(
        rank=rank,
        communicating=communicating,
        waiting=_mean([one.waiting for one in samples]),
        cores=cores,
        queued=min(1.0, max(0.0, last.queued - first.queued) / span),
        idle=max(0.0, 1.0 - communicating - awake),
        bytes=_mean([_bytes_of_step(one) for one in samples]),
        place=max(places, key=places.count) if places else "",
        exposed=exposed_share(first.blocked, last.blocked) if first.blocked else None,
    )


def _bytes_of_step(one: Sample) -> float | None:
    """Bytes of an operation times the operations of a step, which the current one does not blur."""
    if not one.operations or one.bytes is None:
        return None
    return one.bytes / one.operations * max(1, round(one.operations * (one.step or 0.0)))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def others(looks: Sequence[Look]) -> float:
    """Return how many cores other programs used between the first look and the last one."""
    if len(looks) < 2 or looks[-1].at <= looks[0].at:
        return 0.0
    span = looks[-1].at - looks[0].at
    own = {one.rank: one.cores for one in figures(looks)}
    found = 0.0
    for host, busy in looks[-1].busy.items():
        ours = sum(own.get(rank, 0.0) for rank, s in looks[-1].ranks.items() if s.host == host)
        found += max(0.0, (busy - looks[0].busy.get(host, busy)) / span - ours)
    return found


def cores(looks: Sequence[Look]) -> float | None:
    """Return how many cores the hosts have together, None where all ranks are on one."""
    found = looks[-1].cores if looks else {}
    return sum(found.values()) if len(found) > 1 else None
