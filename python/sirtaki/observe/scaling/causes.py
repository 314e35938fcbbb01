"""Determines why a script is not twice as fast on twice as many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sirtaki.observe.blame import slow_line
from sirtaki.observe.scaling.runs import Run
from sirtaki.observe.scaling.watch import RankFigures

_LEAST_SHARE = 0.05
_GOOD = 0.9
_MORE_TIME = 1.1
_BUSY_OTHERS = 0.25
# Ranks that share nothing have an efficiency of 1; caches may raise it slightly.
_MOST_EFFICIENCY = 1.2

COMMUNICATION = "exposed communication"
STRAGGLERS = "stragglers"
MEMORY = "memory bandwidth"
CORES = "cores"
INPUT = "input"


@dataclass(frozen=True)
class Cause:
    """The cause of a share of a step's time. what: a sentence. fix: what to do about it."""

    name: str
    share: float
    what: str
    fix: str


@dataclass(frozen=True)
class Point:
    """A number of ranks compared with the smallest number.

    speed_up, efficiency: None if they are unreliable, as `doubt` explains. causes: the largest
    first.
    """

    ranks: int
    seconds: float
    speed_up: float | None
    efficiency: float | None
    causes: list[Cause]
    doubt: str = ""


def compare(runs: Sequence[Run], cpus: float, strong: bool) -> list[Point]:
    """Compare runs with the one of the fewest ranks.

    Args:
        runs: In any order; if one has no steps, their whole times are compared.
        cpus: How many the ranks share, if they are on one host.
        strong: Whether the ranks share a fixed amount of work, instead of each having its own.
    """
    by_step = all(run.step for run in runs)
    ordered = sorted(runs, key=lambda run: run.ranks)
    base = ordered[0]
    points = []
    for run in ordered:
        now, then = (run.step, base.step) if by_step else (run.seconds, base.seconds)
        assert now is not None
        assert then is not None
        more = run.ranks / base.ranks
        speed_up = then / now * (1.0 if strong else more)
        if speed_up / more > _MOST_EFFICIENCY:
            points.append(Point(run.ranks, now, None, None, [], _doubt(run, base)))
            continue
        causes = causes_of(run, base, cpus, strong) if by_step else []
        points.append(Point(run.ranks, now, speed_up, speed_up / more, causes))
    return points


def _doubt(run: Run, base: Run) -> str:
    busy = f"; other programs used {base.others:.1f} cores" if base.others > _BUSY_OTHERS else ""
    return (
        f"no conclusion for {run.ranks} ranks: they would be more than {_MOST_EFFICIENCY} times as "
        f"efficient as {base.ranks}, so something slowed the run with {base.ranks} down{busy}. "
        "Measure again on a quiet machine, with more --seconds"
    )


def causes_of(run: Run, base: Run, cpus: float, strong: bool = False) -> list[Cause]:
    """Return the causes of a step's time, the largest share first."""
    if not run.of_ranks or not run.step or not base.step:
        return []
    cpus = run.cores or cpus
    usual = base.step / (run.ranks / base.ranks) if strong else base.step
    lost = max(0.0, 1.0 - usual / run.step)
    late = _stragglers(run)
    found = [
        late,
        _communication(run, base, lost - (late.share if late else 0.0)),
        _cores(run, base, cpus),
        _input(run),
    ]
    causes = [cause for cause in found if cause is not None and cause.share >= _LEAST_SHARE]
    rest = lost - sum(cause.share for cause in causes if cause.name != INPUT)
    memory = _memory(run, base, rest)
    return sorted([*causes, *memory], key=lambda cause: -cause.share)


def _stragglers(run: Run) -> Cause | None:
    if len(run.of_ranks) < 2:
        return None
    last = min(run.of_ranks, key=lambda one: one.waiting)
    share = max(one.waiting for one in run.of_ranks) - last.waiting
    line, _ = slow_line({one.rank: one.lines for one in run.of_ranks}, last.rank, share)
    where = f", which takes longer at {line}" if line else ""
    what = f"the others wait {share:.0%} of a step for rank {last.rank}{where}"
    fix = "give it as much work, as fast a core and as fast a loader as the others"
    return Cause(STRAGGLERS, share, what, fix)


def _communication(run: Run, base: Run, lost: float) -> Cause | None:
    """Return communication without waits for ranks, as far as it makes the step longer."""
    if run.ranks == 1:
        return None
    open_ = median(max(0.0, _exposed(one) - one.waiting) for one in run.of_ranks)
    share = max(0.0, open_ if run.ranks == base.ranks else min(open_, lost))
    moved = median(one.bytes for one in run.of_ranks)
    what = f"{share:.0%} of a step is communication that nothing hides, of {moved / 1e6:.1f} MB"
    fix = (
        "send less: compression=hvd.Compression.bf16, backward_passes_per_step; "
        "between hosts `sirtaki doctor --hosts` measures the network"
    )
    return Cause(COMMUNICATION, share, what, fix)


def _exposed(one: RankFigures) -> float:
    """Return the exposed share, or its upper bound if the framework waits in its own code."""
    return one.communicating if one.exposed is None else one.exposed


def _cores(run: Run, base: Run, cpus: float) -> Cause | None:
    alone = median(one.cores for one in base.of_ranks) if base.of_ranks else 0.0
    wanted = alone * run.ranks
    share = median(one.queued for one in run.of_ranks)
    if wanted > cpus * _MORE_TIME and run.ranks > base.ranks:
        share = max(share, 1.0 - cpus / wanted)
    if share < _LEAST_SHARE:
        return None
    who = "a rank that uses" if run.ranks == 1 else f"{run.ranks} ranks of which each alone uses"
    what = f"{who} {alone:.1f} cores: there are {cpus:g}"
    fix = "use more hosts or larger ones, or fewer loaders and threads"
    if run.others > _BUSY_OTHERS:
        what += f", and other programs use {run.others:.1f}"
        fix = f"measure on a quiet machine, where nobody else computes; {fix}"
    what += f"; threads are ready without a core for {share:.0%} of a step"
    return Cause(CORES, share, what, fix)


def _input(run: Run) -> Cause | None:
    share = min(one.idle for one in run.of_ranks)
    line = _idle_line(run.of_ranks, share)
    where = f", most often at {line}" if line else ""
    what = f"ranks neither compute nor communicate for {share:.0%} of a step{where}"
    fix = "load data ahead: more workers of the loader, a faster file system, data in memory"
    return Cause(INPUT, share, what, fix)


def _idle_line(ranks: Sequence[RankFigures], share: float) -> str:
    """Return the line where ranks sleep, or, if none does, where they spend most of a step."""
    shares = [one.idle_lines for one in ranks]
    if not any(shares) and share > 0.5:
        shares = [one.lines for one in ranks]
    lines = {line for each in shares for line in each}
    return max(lines, key=lambda line: sum(each.get(line, 0.0) for each in shares), default="")


def _memory(run: Run, base: Run, rest: float) -> list[Cause]:
    """Return memory as the rest's cause, if a computation takes more core time than alone."""
    before = median(one.cores for one in base.of_ranks) * (base.step or 0.0) if base.of_ranks else 0
    now = median(one.cores for one in run.of_ranks) * (run.step or 0.0)
    if rest < _LEAST_SHARE or before <= 0 or now <= before * _MORE_TIME:
        return []
    what = (
        f"the computation of a step takes {now / before:.1f} times as much processor time as with "
        f"{base.ranks} rank{'s' if base.ranks > 1 else ''}: ranks share memory and caches"
    )
    fix = "try --bind-to numa or socket, a smaller batch or bf16; more hosts have more memory buses"
    return [Cause(MEMORY, rest, what, fix)]


def verdict(point: Point) -> str:
    """Return a line that explains what limits a number of ranks."""
    if not point.causes:
        good = point.efficiency is not None and point.efficiency >= _GOOD
        return "nothing limits it" if good else "nothing seen explains it"
    return ", ".join(f"{cause.name} ({cause.share:.0%})" for cause in point.causes)
