"""`sirtaki top`: shows how fast each rank of a job is, and for whom it waits."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sirtaki.hang.analysis import analyse
from sirtaki.hang.answers import Job, compare, job_of
from sirtaki.hang.asking import UnknownJob, find
from sirtaki.hang.collect import RATES, collect
from sirtaki.hang.report import doing, printable, spans

_HEADINGS = ("RANK", "STEP", "COMM", "WAIT", "CPU", "BYTES/S", "MEMORY", "DOES")
_RATES = ("step", "operations", "bytes", "communicating", "waiting")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki top …`; returns 0, 1 where no rank has answered, or 2."""
    args = make_parser().parse_args(arguments)
    try:
        job = find(args.job)[0].record.job
    except UnknownJob as error:
        print(f"sirtaki top: error: {error}", file=sys.stderr)
        return 2
    with contextlib.suppress(KeyboardInterrupt):
        return _show(job, args)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki top`."""
    parser = argparse.ArgumentParser(
        prog="sirtaki top",
        description="Show of each rank of a job on this machine the time of a step, the shares of "
        "it with an operation open (COMM) and with one that other ranks have not asked for (WAIT), "
        "processor, bytes reduced or moved a second, memory, and what it does. The rank that "
        "others wait for has a star. Ctrl-C ends it; the job goes on as if nobody had looked.",
    )
    parser.add_argument("job", help="a name that `sirtaki ps` shows, or a rank's process id")
    parser.add_argument("--once", action="store_true", help="show it once, not until Ctrl-C")
    parser.add_argument(
        "--json", action="store_true", help="as a line of JSON, with a list `ranks`, for programs"
    )
    parser.add_argument(
        "--interval", type=_interval, default=2.0, help="seconds between two looks (default: 2)"
    )
    return parser


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.1 to 3600")
    return seconds


def _show(job: str, args: argparse.Namespace) -> int:
    """Look at the job until it ends; once where that is wanted."""
    before, at = job_of(collect(job, RATES)), time.monotonic()
    time.sleep(min(args.interval, 0.5))
    while True:
        answers, now = collect(job, RATES), time.monotonic()
        if not answers:
            print(f"sirtaki top: no rank of {job} is left here", file=sys.stderr)
            return 1
        found = job_of(answers)
        compare(before, found, now - at)
        before, at = found, now
        seen = view(job, found, answers)
        if args.json:
            print(json.dumps(seen), flush=True)
        else:
            clear = "\x1b[H\x1b[J" if sys.stdout.isatty() and not args.once else ""
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            print(clear + "\n".join(printable(line)[:width] for line in table(seen)), flush=True)
        if args.once:
            return 0 if any(one.known for one in found.ranks.values()) else 1
        time.sleep(args.interval)


def view(job: str, found: Job, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what `--json` prints.

    Args:
        job: The job's name.
        found: What the ranks have told, compared with an earlier look.
        answers: The same as `collect` has returned it.

    Returns:
        ``job``, and ``ranks``: of each ``rank``, ``host``, ``pid``, ``step`` (seconds),
        ``operations`` and ``bytes`` (a second), ``communicating``, ``waiting``, ``cpu`` (shares of
        the time), ``memory`` (bytes), ``does``, ``waits_for`` (ranks), and ``slowest``. What is
        not known, as of ranks on other hosts, is None.
    """
    rates = {
        state["rank"]: state
        for answer in answers
        for world in answer.get("work") or ()
        if world["whole"]
        for state in world["ranks"]
    }
    memory = {answer["rank"]: answer["memory"] for answer in answers}
    missed = analyse(found).missed
    slowest = _slowest(rates)
    ranks = [
        {
            "rank": rank,
            "host": one.host,
            "pid": one.pid or None,
            **{name: rates.get(rank, {}).get(name) for name in _RATES},
            "cpu": one.share,
            "memory": memory.get(rank),
            "does": doing(one),
            "waits_for": sorted({each for m in missed if rank in m.has for each in m.missing}),
            "slowest": rank == slowest,
        }
        for rank, one in sorted(found.ranks.items())
    ]
    return {"job": job, "ranks": ranks}


def _slowest(rates: Mapping[int, Mapping[str, Any]]) -> int | None:
    """The rank that waits least for the others, if these wait for a tenth of the time or more."""
    waiting = {
        rank: share for rank, one in rates.items() if (share := one.get("waiting")) is not None
    }
    if len(waiting) < 2 or max(waiting.values()) - min(waiting.values()) < 0.1:
        return None
    return min(waiting, key=waiting.__getitem__)


def table(seen: Mapping[str, Any]) -> list[str]:
    """Return the lines of the view."""
    rows = [_HEADINGS, *(_row(one) for one in seen["ranks"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.rjust(width) for text, width in zip(row[:-1], widths, strict=False))
        + f"  {row[-1]}"
        for row in rows
    ]


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    step = one["step"]
    does = one["does"]
    if one["waits_for"]:
        does += f", for rank {spans(one['waits_for'])}"
    return (
        f"{one['rank']}{'*' if one['slowest'] else ' '}",
        "-" if step is None else f"{step * 1e3:.1f} ms",
        *(_percent(one[name]) for name in ("communicating", "waiting", "cpu")),
        _amount(one["bytes"]),
        _amount(one["memory"]),
        does,
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _amount(count: float | None) -> str:
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
