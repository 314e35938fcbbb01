"""The report of a hang in a few lines, for any number of ranks: outliers first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sirtaki.hang.analysis import Diagnosis
from sirtaki.hang.answers import Job, Rank
from sirtaki.hang.causes import cause_of
from sirtaki.rendezvous.words import printable, write_numbers

MOST_LINES = 60
_MOST_OPERATIONS = 6
_MOST_GROUPS = 12
_MOST_FRAMES = 3
_MOST_NAMED = 4
_MOST_TEXT = 240
_WAITS = {
    "input": "reads standard input",
    "read": "waits for data of a file or the network",
    "lock": "waits for a lock or another thread",
    "child": "waits for another process",
    "file lock": "waits for the lock of a file",
    "sleep": "asleep",
}


def report(diagnosis: Diagnosis, job: str, stacks: bool = False) -> str:
    """Return the report as text.

    Args:
        diagnosis: Of the job.
        job: The job's name, for the commands that show more; "": it has ended.
        stacks: Whether to show the whole stack of each group's first rank.
    """
    lines = [_headline(diagnosis)]
    lines += _operations(diagnosis)
    if cause := cause_of(diagnosis):
        lines.append(f"  likely cause: {cause}")
    lines += _groups(diagnosis, stacks)
    if not stacks:
        lines = lines[: MOST_LINES - 1]
    if job:
        lines.append(f"  more: sirtaki hang {job} --stacks, sirtaki stacks {job}")
    return "\n".join(printable(line if stacks else line[:_MOST_TEXT]) for line in lines)


def report_of_progress(job: Job) -> str:
    """Return the report on a job that makes progress, which must not sound like a hang.

    Args:
        job: The answers of its ranks.
    """
    for one in job.ranks.values():
        one.open = [replace(each, peer=None, waits=None) for each in one.open]
    lines = ["no hang: operations have begun, moved or ended while the job was watched"]
    lines += _groups(Diagnosis(job, 0.0, [], [], False), stacks=False)
    return "\n".join(printable(line[:_MOST_TEXT]) for line in lines)


def _headline(diagnosis: Diagnosis) -> str:
    for_so_long = f"no operation has ended for {diagnosis.seconds:.0f} s"
    holding = [one.rank for one in diagnosis.holding]
    if not diagnosis.missed:
        return "no operation waits for another rank"
    if diagnosis.moving:
        return f"waiting, still making progress: {_ranks(holding)} at work; {for_so_long}"
    if not holding:
        return f"stalled: {for_so_long}, and no rank is missing"
    others = [one.rank for one in diagnosis.waiting if one.rank not in holding]
    if not others:
        return f"stalled: {for_so_long}; {_ranks(holding)} wait for one another"
    return f"stalled: {for_so_long}; {_ranks(holding)} held up {_ranks(others)}"


def _operations(diagnosis: Diagnosis) -> Iterable[str]:
    for one in diagnosis.missed[:_MOST_OPERATIONS]:
        line = f"  {diagnosis.job.label(one.asked)} has waited for {one.seconds:.0f} s"
        line += f"; called by {_ranks(one.has)}"
        if one.given:
            line += f"; their accelerators wait for that of {_ranks(one.missing)}"
        elif one.missing:
            line += f"; missing ranks: {_named(diagnosis, one.missing)}"
        elif any(each.stage == "handed over" for each in diagnosis.job.ranks[one.has[0]].open):
            line += "; handed to the accelerator, which has not completed it"
        yield line
    left = len(diagnosis.missed) - _MOST_OPERATIONS
    if left > 0:
        yield f"  and {left} more operations"


def _groups(diagnosis: Diagnosis, stacks: bool) -> Iterable[str]:
    holding = {one.rank for one in diagnosis.holding}
    groups: dict[tuple[bool, str, object], list[Rank]] = {}
    for one in diagnosis.job.ranks.values():
        where = one.own[0][:3] if one.own else None
        groups.setdefault((one.rank in holding, doing(one), where), []).append(one)
    # Ranks that hold up others come first, then the smallest groups.
    ordered = sorted(groups.items(), key=lambda item: (not item[0][0], len(item[1])))
    for key, ranks in ordered[:_MOST_GROUPS]:
        yield f"  {_who(ranks)}: {doing(ranks[0])}{_since(ranks[0])}"
        frames = ranks[0].stack if stacks else ranks[0].own[: _MOST_FRAMES if key[0] else 1]
        yield from (f"      {frame}" for frame in frames)
    left = [rank for _, ranks in ordered[_MOST_GROUPS:] for rank in ranks]
    if left:
        yield f"  {_ranks([one.rank for one in left])}: each at something else"


def doing(one: Rank) -> str:
    """Return a rank's activity, in the same words for all ranks with the same activity."""
    if one.gone:
        return "has left the world"
    if one.stopped:
        return "stopped by a signal"
    if one.pid and not one.state:
        return "dead"
    if one.silent:
        return one.silent
    text = _in_operations(one)
    if one.traced or one.debugger:
        return f"in a debugger, {text}"
    if one.busy:
        return f"in C code that holds Python's lock, {text}"
    if one.handles:
        return f"handles {one.handles}, {text}"
    if one.open or one.moved is None:
        return text
    return f"{'computing' if one.moved else _WAITS.get(one.call, 'idle')}, {text}"


def _in_operations(one: Rank) -> str:
    if not one.known:
        return "its state is not known"
    if not one.open:
        last = f"; the last one was {one.ended[-1]}" if one.ended else " yet"
        return f"in no operation{last}"
    first = max(one.open, key=lambda each: (each.stage != "submitted", each.waits or 0.0))
    more = f" and {len(one.open) - 1} more" if len(one.open) > 1 else ""
    if first.stage == "submitted":
        return f"waits in {first.asked}{more}"
    if first.stage == "handed over":
        return f"in {first.asked}{more}, handed to its accelerator"
    if first.peer is None:
        return f"in {first.asked}{more}"
    peer = "any rank" if first.peer < 0 else _ranks([first.peer])
    return f"in {first.asked}{more}, waiting for {peer}"


def _since(one: Rank) -> str:
    """Return the time since a rank was last in an operation."""
    return "" if one.open or not one.ended else f", {one.idle:.0f} s ago"


def _who(ranks: Sequence[Rank]) -> str:
    if len(ranks) == 1:
        one = ranks[0]
        process = f", process {one.pid}" if one.pid else ""
        return f"rank {one.rank} ({one.host}{process})"
    hosts = sorted({one.host for one in ranks})
    where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
    return f"{_ranks([one.rank for one in ranks])} ({where})"


def _named(diagnosis: Diagnosis, ranks: Sequence[int]) -> str:
    if len(ranks) > _MOST_NAMED:
        return spans(ranks)
    hosts = {one.rank: one.host for one in diagnosis.job.ranks.values()}
    return ", ".join(f"{rank} ({hosts[rank]})" if rank in hosts else str(rank) for rank in ranks)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"


def spans(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: ``0-3,6``."""
    return write_numbers(sorted(set(numbers)))
