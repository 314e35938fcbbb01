"""`sirtaki stacks`: prints where every thread of a job's ranks is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sirtaki.hang.asking import Busy, NoAnswer, UnknownJob, ask, dump, find
from sirtaki.rendezvous.host.presence import Presence

_STACK_SECONDS = 2.0


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki stacks …`; returns 0, 1 when a rank had no stacks to show, or 2."""
    args = make_parser().parse_args(arguments)
    try:
        ranks = find(args.job)
        chosen = _choose(ranks, args.rank)
    except (UnknownJob, ValueError) as error:
        print(f"sirtaki stacks: error: {error}", file=sys.stderr)
        return 2
    shown = [_print_rank(rank, args.patience) for rank in chosen]
    if args.rank is None:
        _print_elsewhere(args.job, ranks)
    return 0 if all(shown) else 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `sirtaki stacks`."""
    parser = argparse.ArgumentParser(
        prog="sirtaki stacks",
        description="Print the Python stacks of a job's ranks on this machine, also while they "
        "are stuck. The job goes on as if nobody had asked.",
    )
    parser.add_argument("job", help="a name that `sirtaki ps` shows, or a rank's process id")
    parser.add_argument(
        "--rank", type=int, action="append", help="only this rank; may be given again"
    )
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
    """Print what a rank tells; False where it has no stacks."""
    lines, found = stack_lines(rank, patience)
    print("\n".join(lines))
    return found


def stack_lines(rank: Presence, patience: float) -> tuple[list[str], bool]:
    """Return what a rank tells of its threads, and whether it has any stacks to show.

    Args:
        rank: Of this machine.
        patience: How many seconds it has to answer, before a signal makes it write its stacks.
    """
    record = rank.record
    title = f"rank {record.rank} (process {record.pid} on {record.hostnames[record.rank]})"
    try:
        threads = ask(rank, "stacks", patience)
        memory = ask(rank, "memory", patience)
        versions = ask(rank, "versions", patience)
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
    """Return what one rank of a job tells, or a line that says why there is nothing.

    Args:
        job: Its name.
        rank: Of this machine, if it is to answer.
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
    """Say where to ask about ranks of other hosts, and of this one that have left no record."""
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
            print(f"rank {', '.join(others)}: on {host}; there: sirtaki stacks {job}")
