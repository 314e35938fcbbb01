"""`sirtaki ps`: lists jobs, or shows what the ranks of one are doing."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.questions.asking import NoAnswer, UnknownJob, ask, find, jobs, launchers
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.host.presence import Presence, require_trusted
from sirtaki.rendezvous.words import aligned, printable, write_numbers

_HEADINGS = ("JOB", "RANKS HERE", "SINCE", "COMMAND")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki ps …`; returns the exit code."""
    args = make_parser().parse_args(arguments)
    if args.job is None:
        return _list()
    try:
        ranks = find(args.job)
    except UnknownJob as error:
        return refused("sirtaki ps", error)
    return _show(ranks)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki ps`."""
    parser = CommandParser(
        prog="sirtaki ps",
        description="List your running jobs on this machine, whoever started them; with JOB, "
        "show what each of its ranks is doing. A job appears once it has called init(), and on its "
        "launcher's machine before.",
    )
    parser.add_argument("job", nargs="?", help="a name in the list, or a rank's process id")
    return parser


def _list() -> int:
    try:
        require_trusted()
    except PermissionError as error:
        return refused("sirtaki ps", error)
    rows: list[Sequence[str]] = [_HEADINGS]
    known = jobs()
    for job, ranks in known.items():
        first = ranks[0].record
        here = f"{write_numbers(one.record.rank for one in ranks)} of {len(first.hostnames)}"
        since, command = _since(first.started), _command(first.command)
        rows.append([printable(each) for each in (job, here, since, command)])
    for job, pid in launchers().items():
        if job not in known:
            rows.append([printable(each) for each in (job, "launcher", "", _command(_words(pid)))])
    print("\n".join(aligned(rows, left=True)))
    return 0


def _show(ranks: Sequence[Presence]) -> int:
    """Print the state of all ranks, as the first rank to answer knows it."""
    for rank in ranks:
        try:
            states = ask(rank, Question.STATE, patience=3.0)
        except NoAnswer as reason:
            print(printable(f"rank {rank.record.rank}: {reason}"), file=sys.stderr)
            continue
        for line in "\n".join(map(str, states)).split("\n"):
            print(printable(line))
        return 0
    return 1


def _since(started: float) -> str:
    seconds = max(0, int(time.time() - started))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _words(pid: int) -> list[str]:
    """Return the command line of a process, empty if it has ended."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        return text.rstrip("\0").split("\0")
    return []


def _command(words: Sequence[str]) -> str:
    return shlex.join([Path(words[0]).name, *words[1:]]) if words else ""
