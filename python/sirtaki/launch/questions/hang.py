"""`sirtaki hang`: says why a job hangs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from sirtaki.hang.analysis import analyse
from sirtaki.hang.answers import Job, compare, job_of
from sirtaki.hang.asking import UnknownJob, find
from sirtaki.hang.collect import FAR, collect
from sirtaki.hang.report import report, spans
from sirtaki.launch.questions.asked import ask_launcher, launched_here

_BETWEEN_SECONDS = 0.5


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki hang …`; returns 0, 1 where no rank has answered, or 2."""
    args = make_parser().parse_args(arguments)
    try:
        job = find(args.job)[0].record.job
    except UnknownJob as error:
        job = launched_here(args.job)
        if not job:
            print(f"sirtaki hang: error: {error}", file=sys.stderr)
            return 2
    began = time.monotonic()
    earlier, _ = _look(job, args.patience)
    time.sleep(_BETWEEN_SECONDS)
    between = time.monotonic() - began
    later, everywhere = _look(job, args.patience)
    if not any(one.known for one in later.ranks.values()):
        for one in later.ranks.values():
            if one.pid:
                why = "runs no Python for now" if one.busy else one.silent
                print(f"rank {one.rank} (process {one.pid}): {why}", file=sys.stderr)
        return 1
    compare(earlier, later, between)
    if earlier.fingerprint != later.fingerprint:
        print("the job makes progress: operations have begun, moved or ended while it was watched")
    print(report(analyse(later), job, args.stacks))
    if not everywhere:
        for line in unknown(later):
            print(line)
    return 0


def _look(job: str, patience: float) -> tuple[Job, bool]:
    """What all ranks do, and whether all hosts were asked.

    A launcher here asks them; else a rank here tells what its engine knows.
    """
    told = ask_launcher(job)
    return job_of(told or collect(job, FAR, patience)), bool(told)


def unknown(job: Job) -> list[str]:
    """Return in lines what cannot be known on a host that is not the launcher's, and where it is.

    Args:
        job: What was told here.
    """
    here = {one.host for one in job.ranks.values() if one.pid}
    far = [one for one in job.ranks.values() if one.host not in here]
    if not far:
        return []
    hosts = ", ".join(sorted({one.host for one in far}))
    silent = [one.rank for one in far if not one.known]
    lines = [
        f"not known here of ranks {spans(one.rank for one in far)} ({hosts}): their lines of code, "
        "and whether they compute, are stopped or in a debugger"
    ]
    if silent:
        lines.append(f"nothing at all is known of ranks {spans(silent)}: they have not answered")
    lines.append(
        "ask on the host where `horovodrun` runs, which knows all; of a job of another launcher, "
        f"such as torchrun, on {hosts} too"
    )
    return lines


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki hang`."""
    parser = argparse.ArgumentParser(
        prog="sirtaki hang",
        description="Say what a job waits for: which ranks have asked for which operation and "
        "which have not, what these do instead, and a likely cause. The job goes on as if nobody "
        "had asked.",
    )
    parser.add_argument("job", help="a name that `sirtaki ps` shows, or a rank's process id")
    parser.add_argument(
        "--stacks", action="store_true", help="the whole stack of one rank of each group"
    )
    parser.add_argument(
        "--patience", type=float, default=1.0, help="seconds for a rank to answer (default: 1)"
    )
    return parser
