"""`sirtaki hang`: explains why a job hangs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from sirtaki.hang.analysis import analyse
from sirtaki.hang.answers import Job, compare, job_of
from sirtaki.hang.report import report, report_of_progress, spans
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.questions.asking import JOB_HELP, UnknownJob, ask_launcher, find_launched
from sirtaki.questions.collect import collect
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.words import printable

_BETWEEN_SECONDS = 0.5
# In a job that makes progress, a shorter wait is not a hang.
_LONG_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki hang …`; returns 0, 1 if no rank answered, or 2."""
    args = make_parser().parse_args(arguments)
    try:
        job, _ = find_launched(args.job)
    except UnknownJob as error:
        return refused("sirtaki hang", error)
    began = time.monotonic()
    earlier, _ = _look(job, args.patience)
    time.sleep(_BETWEEN_SECONDS)
    between = time.monotonic() - began
    later, everywhere = _look(job, args.patience)
    if not any(one.known for one in later.ranks.values()):
        for one in later.ranks.values():
            if one.pid:
                why = "runs no Python for now" if one.busy else one.silent
                text = printable(f"rank {one.rank} (process {one.pid}): {why}")
                print(text, file=sys.stderr)
        return 1
    compare(earlier, later, between)
    found = analyse(later)
    moves = earlier.fingerprint != later.fingerprint
    if moves and all(one.seconds < _LONG_SECONDS for one in found.missed) and not args.stacks:
        print(report_of_progress(later))
    else:
        print(report(found, job, args.stacks))
    if not everywhere:
        for line in unknown(later):
            print(printable(line))
    return 0


def _look(job: str, patience: float) -> tuple[Job, bool]:
    """Return what all ranks are doing, and whether all hosts were asked.

    A launcher on this host asks them; otherwise a rank here reports what its engine knows.
    """
    told = ask_launcher(job, Question.REPORT)
    return job_of(told or collect(job, Question.FAR, patience)), bool(told)


def unknown(job: Job) -> list[str]:
    """Return lines about what is unknown on a host without the launcher, and where to ask.

    Args:
        job: The answers of this host.
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
    parser = CommandParser(
        prog="sirtaki hang",
        description="Say why a job hangs: which ranks have called which operation and which "
        "have not, what these do instead, and the likely cause. The job is not disturbed.",
    )
    parser.add_argument("job", nargs="?", help=JOB_HELP)
    parser.add_argument(
        "--stacks", action="store_true", help="print the whole stack of one rank of each group"
    )
    parser.add_argument(
        "--patience", type=float, default=1.0, help="seconds for a rank to answer (default: 1)"
    )
    return parser
