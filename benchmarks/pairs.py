"""Messages there and back between two ranks, beside Open MPI and torch's Gloo.

python benchmarks/pairs.py        (the part with two hosts needs root, iproute2 and an sshd)
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allreduce import rank_environment, run_mpi
from hosts import bed_of, launch, reason_to_skip
from output import RESULTS, write_result
from refused import REFUSED, WITHIN
from targets import Check, check_pairs

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_bytes, show_rate, show_seconds, sizes_between
from sirtaki.rendezvous.stores.unix_store import UnixStoreServer
from sirtaki.rendezvous.words import aligned

HERE = Path(__file__).resolve().parent

Result = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    cases = {
        "one host": measure_host(args.max_bytes, args.rounds, args.peers, []),
        REFUSED: measure_host(args.max_bytes, args.rounds, args.peers, WITHIN),
    }
    if args.hosts and reason_to_skip() is None:
        cases["two hosts"] = measure_hosts(args.max_bytes, args.rounds)
    checks = check_pairs(cases) if args.peers else []
    print("\n".join(show(cases, checks)))
    result = {
        "benchmark": "pairs",
        "command": shlex.join(["python", "benchmarks/pairs.py", *arguments]),
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "pairs.json", result)
    return 0


def measure_host(largest: int, rounds: int, peers: bool, within: Sequence[str]) -> Result:
    """Run pairs_rank.py on two ranks of this host, under mpirun; `within` starts that."""
    with tempfile.TemporaryDirectory() as folder, UnixStoreServer() as server:
        sizes = json.dumps(sizes_between(4, largest))
        rank = [
            str(HERE / "pairs_rank.py"),
            folder,
            "host" if peers else "alone",
            sizes,
            str(rounds),
        ]
        command = [*within, *run_mpi(2), sys.executable, "-m", "mpi4py", *rank]
        subprocess.run(command, check=True, env=rank_environment(server, 2))
        result: Result = json.loads((Path(folder) / "result.json").read_text())
    return result


def measure_hosts(largest: int, rounds: int) -> Result:
    """Run pairs_rank.py on two virtual hosts."""
    sizes = [size for size in (4, 1 << 20, 64 << 20) if size <= largest]
    with bed_of(2, None) as (bed, folder):
        rank = [str(HERE / "pairs_rank.py"), str(folder), "hosts", json.dumps(sizes), str(rounds)]
        launch(bed, 1, sys.executable, *rank)
        result: Result = json.loads((folder / "result.json").read_text())
    return result


def show(cases: Result, checks: Sequence[Check]) -> list[str]:
    """Return lines: a table for each case, then the targets."""
    lines = []
    for title, timings in cases.items():
        rows = [["bytes", *next(iter(timings.values()))]]
        for size, by_name in timings.items():
            medians = [taken["median"] for taken in by_name.values()]
            cells = [f"{show_seconds(m)}, {show_rate(2 * int(size), m)}" for m in medians]
            rows.append([show_bytes(int(size)), *cells])
        lines += [f"There and back, {title}: median time, GB/s", *aligned(rows), ""]
    return [*lines, *(check.line() for check in checks)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-bytes", type=int, default=64 << 20, help="longest message (64 MiB)")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each contender (8)")
    parser.add_argument("--no-hosts", dest="hosts", action="store_false", help="one host alone")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="Sirtaki alone")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
