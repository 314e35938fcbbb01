"""`sirtaki stacks`: prints the stack of every thread of a job's ranks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.questions.asking import JOB_HELP, Busy, NoAnswer, UnknownJob, ask, find
from sirtaki.questions.dumped import dump
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.host.presence import Presence
from sirtaki.rendezvous.words import printable

_STACK_SECONDS = 2.0


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki stacks …`; returns 0, 1 when a rank had no stacks to show, or 2."""
    args = make_parser().parse_args(arguments)
    try:
        ranks = find(args.job)
        chosen = _choose(ranks, args.rank)
    except (UnknownJob, ValueError) as error:
        return refused("sirtaki stacks", error)
    shown = [_print_rank(rank, args.patience) for rank in chosen]
    if args.rank is None:
        _print_elsewhere(ranks[0].record.job, ranks)
    return 0 if all(shown) else 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `sirtaki stacks`."""
    parser = CommandParser(
        prog="sirtaki stacks",
        description="Print the Python stacks of a job's ranks on this machine, even while they "
        "are stuck. The job is not disturbed.",
    )
    parser.add_argument("job", nargs="?", help=JOB_HELP)
    parser.add_argument("--rank", type=int, action="append", help="only this rank (repeatable)")
    parser.add_argument(
        "--patience",
        type=float,
        default=_STACK_SECONDS,
        help="seconds for a rank to answer (default: 2)",
    )
    return parser


def _choose(ranks: list[Presence], wanted: list[int] | None) -> list[Presence]:
    if wanted is None:
        return ranks
    here = {one.record.rank: one for one in ranks}
    hostnames = ranks[0].record.hostnames
    for rank in wanted:
        if not 0 <= rank < len(hostnames):
            raise ValueError(f"--rank {rank}: the job has ranks 0 to {len(hostnames) - 1}")
        if rank not in here:
            raise ValueError(f"--rank {rank}: it runs on {hostnames[rank]}; ask there")
    return [here[rank] for rank in wanted]


def _print_rank(rank: Presence, patience: float) -> bool:
    """Print a rank's answer; False if it has no stacks."""
    lines, found = stack_lines(rank, patience)
    print("\n".join(map(printable, lines)))
    return found


def stack_lines(rank: Presence, patience: float) -> tuple[list[str], bool]:
    """Return a rank's lines about its threads, and whether they contain stacks.

    Args:
        rank: A rank on this machine.
        patience: Seconds for its answer, before a signal makes it write its stacks.
    """
    record = rank.record
    title = f"rank {record.rank} (process {record.pid} on {record.hostnames[record.rank]})"
    try:
        threads = ask(rank, Question.STACKS, patience)
        memory = ask(rank, Question.MEMORY, patience)
        versions = ask(rank, Question.VERSIONS, patience)
    except Busy as reason:
        lines, found = _dump_lines(rank)
        return [f"{title}: {reason}", *lines], found
    except NoAnswer as reason:
        return [f"{title}: {reason}"], False
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [f"{title}: {memory['resident'] >> 20} MiB; {named}"]
    for thread in threads:
        lines.append(f"  {thread['thread']}:")
        lines += [f"  {line}" for line in thread["stack"]]
    return lines, True


def stack_of(job: str, rank: int) -> list[str]:
    """Return one rank's lines about its threads, or a line that explains why there are none.

    Args:
        job: Its name.
        rank: Must be on this machine to answer.
    """
    try:
        ranks = {one.record.rank: one for one in find(job)}
    except UnknownJob:
        ranks = {}
    if rank not in ranks:
        return [f"rank {rank}: it has ended, or runs on another host"]
    return stack_lines(ranks[rank], _STACK_SECONDS)[0]


def _dump_lines(rank: Presence) -> tuple[list[str], bool]:
    try:
        text = dump(rank)
    except NoAnswer as reason:
        return [f"  {reason}"], False
    return [f"  {line}" for line in text.splitlines()], True


def _print_elsewhere(job: str, ranks: Sequence[Presence]) -> None:
    """Print where to ask about ranks of other hosts, and about ranks here without a record."""
    hostnames = ranks[0].record.hostnames
    here = {one.record.rank for one in ranks}
    elsewhere: dict[str, list[str]] = {}
    for rank, host in enumerate(hostnames):
        if rank not in here:
            elsewhere.setdefault(host, []).append(str(rank))
    for host, others in elsewhere.items():
        if host == ranks[0].record.hostnames[ranks[0].record.rank]:
            print(f"rank {', '.join(others)}: has ended, or left the job")
        else:
            where = printable(f"on {host}; there: sirtaki stacks {job}")
            print(f"rank {', '.join(others)}: {where}")
