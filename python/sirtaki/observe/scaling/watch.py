"""Samples the ranks of a running job from outside, and computes figures between samples."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from sirtaki.hang.answers import exposed_share
from sirtaki.questions.asking import ask_launcher, launchers
from sirtaki.questions.collect import collect
from sirtaki.questions.messages import Question, RankAnswer, RankWork, ThreadPlace
from sirtaki.questions.place import own_line
from sirtaki.rendezvous.host.presence import present, stat_of


@dataclass(frozen=True)
class Sample:
    """One rank at one moment.

    completed: operations so far. cpu, queued: seconds so far of its threads on a core, and of the
    thread that was ready without a core for longest. awake: the sum of both for its main thread.
    step, communicating, waiting, bytes: as in `sirtaki top`, None if unknown. line: the main
    thread's line in the user's code, "" while an operation is open. asleep: whether it waits there
    for data, a child or the time. blocked: the values that `exposed_share` compares.
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
    line: str
    asleep: bool = False
    host: str = ""
    blocked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """The ranks of a job at one moment.

    busy, cores: for each host the busy seconds of all its cores so far, and its number of cores.
    """

    at: float
    busy: Mapping[str, float]
    ranks: Mapping[int, Sample]
    cores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RankFigures:
    """One rank over a period.

    communicating, waiting: shares of the period with an operation open, and with one that others
    have not submitted. exposed: share blocked in our calls, None if unknown. cores: how many it
    used. queued, idle: shares in which it was ready without a core, and in which it did nothing.
    bytes: of a step. lines, idle_lines: the share of samples in each of the user's lines without an
    open operation, and asleep there.
    """

    rank: int
    communicating: float
    waiting: float
    cores: float
    queued: float
    idle: float
    bytes: float
    lines: Mapping[str, float] = field(default_factory=dict)
    idle_lines: Mapping[str, float] = field(default_factory=dict)
    exposed: float | None = None


def job_below(launcher: int) -> str | None:
    """Return the name of the job that a launcher here has started, None if there is none yet."""
    for one in present():
        if _is_below(one.record.pid, launcher):
            return one.record.job
    found = (job for job, pid in launchers().items() if _is_below(pid, launcher))
    return next(found, None)


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = stat_of(pid).parent
    return False


def look(job: str) -> Look:
    """Ask the ranks of a job: those of all hosts if its launcher here answers."""
    told = ask_launcher(job, Question.FIGURES) or collect(job, Question.FIGURES)
    # Each rank knows all ranks of its host, including those that cannot answer now.
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


def _line(told: RankAnswer) -> str:
    open_now = any(
        state["open"]
        for world in told.get("work") or ()
        for state in world["ranks"]
        if state["rank"] == told["rank"]
    )
    if open_now:
        return ""
    return own_line(told.get("place", ThreadPlace()).get("stack", ()))


def _sample(told: RankAnswer, state: RankWork) -> Sample:
    kernel = told["scheduled"]
    return Sample(
        completed=state["completed"],
        cpu=kernel["cpu"],
        queued=kernel["queued"],
        awake=kernel["awake"],
        step=state.get("step"),
        communicating=state.get("communicating"),
        waiting=state.get("waiting"),
        bytes=state.get("bytes"),
        operations=state.get("operations"),
        line=_line(told),
        # A thread that computes in Python is in "lock" too, while another thread answers us.
        asleep=told.get("place", ThreadPlace()).get("call", "") not in ("", "lock"),
        host=told["host"],
        blocked=state,
    )


def step_seconds(looks: Sequence[Look]) -> float | None:
    """Return the time of a step, the median of all ranks and samples; None if it is unknown.

    If no operation has a recurring name, each operation counts as a step.
    """
    every = [one for each in looks for one in each.ranks.values()]
    steps = [one.step for one in every if one.step]
    steps = steps or [1.0 / one.operations for one in every if one.operations]
    return median(steps) if steps else None


def steps_done(looks: Sequence[Look]) -> float:
    """Return the number of steps between the first and the last sample."""
    if len(looks) < 2 or not looks[0].ranks or not looks[-1].ranks:
        return 0.0
    rank = min(looks[0].ranks)
    first, last = looks[0].ranks[rank], looks[-1].ranks.get(rank)
    if last is None:
        return 0.0
    of_a_step = (last.operations or 0.0) * (last.step or 0.0)
    return (last.completed - first.completed) / max(1.0, of_a_step)


def figures(looks: Sequence[Look]) -> list[RankFigures]:
    """Return each rank's figures between its first and last sample."""
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
    return RankFigures(
        rank=rank,
        communicating=communicating,
        waiting=_mean([one.waiting for one in samples]),
        cores=cores,
        queued=min(1.0, max(0.0, last.queued - first.queued) / span),
        idle=max(0.0, 1.0 - communicating - awake),
        bytes=_mean([_bytes_of_step(one) for one in samples]),
        lines=_shares(samples, [one.line for one in samples]),
        idle_lines=_shares(samples, [one.line for one in samples if one.asleep]),
        exposed=exposed_share(first.blocked, last.blocked) if first.blocked else None,
    )


def _shares(samples: Sequence[Sample], lines: Sequence[str]) -> dict[str, float]:
    return {line: count / len(samples) for line, count in Counter(lines).items() if line}


def _bytes_of_step(one: Sample) -> float | None:
    """Return the mean bytes of an operation times the operations of a step."""
    if not one.operations or one.bytes is None:
        return None
    return one.bytes / one.operations * max(1, round(one.operations * (one.step or 0.0)))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def others(looks: Sequence[Look]) -> float:
    """Return how many cores other programs used between the first and the last sample."""
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
    """Return the total number of cores of the hosts, None if all ranks are on one host."""
    found = looks[-1].cores if looks else {}
    return sum(found.values()) if len(found) > 1 else None
