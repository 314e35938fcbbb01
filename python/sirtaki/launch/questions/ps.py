"""`sirtaki ps`: lists jobs, and what the ranks of one are doing."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sirtaki.hang.asking import NoAnswer, UnknownJob, ask, find, jobs
from sirtaki.rendezvous.host.presence import Presence
from sirtaki.rendezvous.words import write_numbers

_HEADINGS = ("JOB", "RANKS HERE", "SINCE", "COMMAND")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki ps …`; returns the exit code."""
    args = make_parser().parse_args(arguments)
    if args.job is None:
        _list()
        return 0
    try:
        ranks = find(args.job)
    except UnknownJob as error:
        print(f"sirtaki ps: error: {error}", file=sys.stderr)
        return 2
    return _show(ranks)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki ps`."""
    parser = argparse.ArgumentParser(
        prog="sirtaki ps",
        description="List your jobs on this machine that have called init(), whoever started "
        "them; of one job, show what all its ranks are doing.",
    )
    parser.add_argument("job", nargs="?", help="a name of the list, or a rank's process id")
    return parser


def _list() -> None:
    rows = [_HEADINGS]
    for job, ranks in jobs().items():
        first = ranks[0].record
        here = f"{write_numbers(one.record.rank for one in ranks)} of {len(first.hostnames)}"
        rows.append((job, here, _since(first.started), _command(first.command)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())


def _show(ranks: Sequence[Presence]) -> int:
    """Print the state of all ranks, as the first one that answers knows it."""
    for rank in ranks:
        try:
            states = ask(rank, "state", patience=3.0)
        except NoAnswer as reason:
            print(f"rank {rank.record.rank}: {reason}", file=sys.stderr)
            continue
        print("\n".join(states))
        return 0
    return 1


def _since(started: float) -> str:
    seconds = max(0, int(time.time() - started))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _command(words: Sequence[str]) -> str:
    return shlex.join([Path(words[0]).name, *words[1:]]) if words else ""
