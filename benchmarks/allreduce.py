"""Sirtaki's allreduce beside torch's Gloo, three MPIs and memcpy, in one run.

python benchmarks/allreduce.py -np 2
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mpi_jobs import other_mpis, start_job, wait_for_all
from output import RESULTS, write_result
from peers import GLOO, OPEN_MPI
from refused import REFUSED, WITHIN
from targets import Check, check_allreduce, check_refused

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Plan, Timings, sizes_between, table
from sirtaki.rendezvous.stores.unix_store import UnixStoreServer

HERE = Path(__file__).resolve().parent
_REFUSED_SIZES = (4, 1 << 20, 64 << 20)


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    # An MPI that spins while others wait for its core takes minutes for the large sizes.
    plan = Plan(sizes_between(4, args.max_bytes), args.rounds, args.seconds, patience=0.25)
    facts = machine_facts()
    others = other_mpis() if args.peers else None
    timings, mpi = measure_ranks(plan, args.num_proc, others, [])
    some = replace(plan, sizes=[size for size in plan.sizes if size in _REFUSED_SIZES])
    refused, _ = measure_ranks(some, args.num_proc, {} if args.peers else None, WITHIN)
    checks: list[Check] = []
    if args.peers:
        checks += check_allreduce(timings, args.num_proc, int(facts["cores"]))
        checks += check_refused(refused)
    result = {
        "benchmark": "allreduce",
        "command": shlex.join(["python", "benchmarks/allreduce.py", *arguments]),
        "ranks": args.num_proc,
        "machine": {**facts, "mpi": mpi},
        "timings": timings,
        REFUSED: refused,
        "targets": [asdict(check) for check in checks],
    }
    tables = [*table(timings), "", f"{REFUSED}:", *table(refused), ""]
    print("\n".join([*tables, *(check.line() for check in checks)]))
    write_result(Path(args.output) / f"allreduce-{args.num_proc}ranks.json", result)
    return 0


def measure_ranks(
    plan: Plan, ranks: int, others: Mapping[str, Path] | None, within: Sequence[str]
) -> tuple[Timings, str]:
    """Run allreduce_rank.py under mpirun, and that within another command.

    others: MPIs that take part beside Gloo and Open MPI; None: Sirtaki and memcpy alone.
    Returns the timings and the MPIs' names.
    """
    with tempfile.TemporaryDirectory() as folder, UnixStoreServer() as server:
        # Under mpi4py's main program one rank's exception ends all ranks.
        python = [sys.executable, "-m", "mpi4py"]
        peers = [] if others is None else [GLOO, OPEN_MPI, *others]
        rank = [str(HERE / "allreduce_rank.py"), json.dumps(asdict(plan)), folder, *peers]
        mpis = (others or {}).items()
        jobs = [start_job(name, path, ranks, Path(folder)) for name, path in mpis]
        command = [*within, *run_mpi(ranks), *python, *rank]
        ours = subprocess.Popen(command, env=rank_environment(server, ranks))
        wait_for_all([ours, *jobs])
        result = json.loads((Path(folder) / "timings.json").read_text())
    return {int(size): by_name for size, by_name in result["timings"].items()}, result["mpi"]


def run_mpi(ranks: int) -> list[str]:
    """Return the command that starts so many ranks."""
    program = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        raise SystemExit("no mpirun: pip install -r tools/requirements-bench.txt")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [program, *root, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def rank_environment(server: UnixStoreServer, ranks: int) -> dict[str, str]:
    """Return the variables of the ranks."""
    environment = {
        **os.environ,
        "SIRTAKI_RENDEZVOUS": server.address,
        "OMP_NUM_THREADS": "1",
    }
    if ranks > (os.cpu_count() or 1):
        # Otherwise a rank that polls keeps the one it waits for off its core.
        environment["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return environment


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-np", "--num-proc", type=int, default=2, help="ranks (2)")
    parser.add_argument("--max-bytes", type=int, default=256 << 20, help="largest array (256 MiB)")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each contender (8)")
    parser.add_argument("--seconds", type=float, default=0.04, help="of a turn, about (0.04)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="Sirtaki alone")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
