"""`sirtaki stacks`: prints where every thread of a job's ranks is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sirtaki.hang.asking import Busy, NoAnswer, UnknownJob, ask, dump, find
from sirtaki.rendezvous.host.presence import Presence


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
        "--patience", type=float, default=2.0, help="seconds for a rank to answer (default: 2)"
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
    record = rank.record
    title = f"rank {record.rank} (process {record.pid} on {record.hostnames[record.rank]})"
    try:
        threads = ask(rank, "stacks", patience)
        memory = ask(rank, "memory", patience)
        versions = ask(rank, "versions", patience)
    except Busy as reason:
        print(f"{title}: {reason}")
        return _print_dump(rank)
    except NoAnswer as reason:
        print(f"{title}: {reason}")
        return False
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"{title}: {memory['resident'] >> 20} MiB; {named}")
    for thread in threads:
        print(f"  {thread['thread']}:")
        print("\n".join(f"  {line}" for line in thread["stack"]))
    return True


def _print_dump(rank: Presence) -> bool:
    try:
        text = dump(rank)
    except NoAnswer as reason:
        print(f"  {reason}")
        return False
    print("\n".join(f"  {line}" for line in text.splitlines()))
    return True


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
