"""Several hosts: links of network namespaces, Sirtaki beside torch's Gloo and the links' limit.

python benchmarks/hosts.py        (needs root, iproute2 and an sshd)
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from output import RESULTS, write_result
from targets import Check, check_hosts, check_many

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_bytes, show_rate, show_seconds
from sirtaki.rendezvous.words import aligned

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tests.hosts.bed import SSH_PORT, Bed, reason_to_skip  # noqa: E402

_LIMIT = 600.0
_MIDDLE = "2gbit"
_SLOW = "1gbit"
_SLOW_BYTES_PER_SECOND = 1e9 / 8
_MANY = "16 hosts at 100 Mbit/s"
_SLOWEST = "100mbit"
_SLOWEST_BYTES_PER_SECOND = 1e8 / 8
_HOROVODRUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"

Result = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--only-many", action="store_true", help=f"only {_MANY}")
    parser.add_argument("--output", default=str(RESULTS), help="folder of hosts.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no bed of virtual hosts here: {reason}")
    facts = machine_facts()
    many = {_MANY: measure_many(args.rounds)}
    checks = check_many(many[_MANY], _SLOWEST_BYTES_PER_SECOND)
    if args.only_many:
        print("\n".join(show(many, checks)))
        return 0
    cases = {
        "allreduce, 2 hosts": measure(2, 1, None, ["allreduce", args.rounds]),
        "hierarchy, 2 hosts of 2 ranks": measure(2, 2, None, ["hierarchy", args.rounds]),
        "hierarchy, 2 hosts of 2 ranks at 2 Gbit/s": measure(2, 2, _MIDDLE, ["hierarchy", 2]),
        "training, 3 hosts at 1 Gbit/s": measure(3, 1, _SLOW, ["training", args.rounds]),
        **many,
    }
    checks = check_hosts(cases, _SLOW_BYTES_PER_SECOND) + checks
    print("\n".join(show(cases, checks)))
    result = {
        "benchmark": "hosts",
        "command": shlex.join(["python", "benchmarks/hosts.py", *arguments]),
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "hosts.json", result)
    return 0


@contextmanager
def bed_of(hosts: int, rate: str | None) -> Iterator[tuple[Bed, Path]]:
    """Make a bed of hosts, and a folder that they share."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bed").mkdir()
        with Bed(hosts, folder / "bed", rate) as bed:
            yield bed, folder


def launch(bed: Bed, per_host: int, *command: str) -> str:
    """Run a command on all hosts from the first; return what it printed."""
    slots = ",".join(f"{host.address}:{per_host}" for host in bed.hosts)
    size = per_host * len(bed.hosts)
    flags = ("-np", str(size), "-H", slots, "-p", str(SSH_PORT), "--start-timeout", "120")
    launcher = (sys.executable, "-c", _HOROVODRUN, *flags)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = bed.hosts[0].run(*launcher, *command, timeout=_LIMIT, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def measure(hosts: int, per_host: int, rate: str | None, arguments: Sequence[object]) -> Result:
    """Run hosts_rank.py on every rank; return what rank 0 measured."""
    with bed_of(hosts, rate) as (bed, folder):
        command = [sys.executable, str(HERE / "hosts_rank.py"), str(folder)]
        launch(bed, per_host, *command, *map(str, arguments))
        result: Result = json.loads((folder / "result.json").read_text())
        return result


def measure_many(rounds: int) -> Result:
    """Run many_hosts_rank.py on as many hosts as no longer all talk to each other."""
    with bed_of(16, _SLOWEST) as (bed, folder):
        command = [sys.executable, str(HERE / "many_hosts_rank.py"), str(folder), str(rounds)]
        launch(bed, 1, *command)
        result: Result = json.loads((folder / "result.json").read_text())
        return result


def show(cases: Result, checks: Sequence[Check]) -> list[str]:
    """Return lines: a table for each case, then the targets."""
    lines = []
    for title, case in cases.items():
        rows = [["", "median", "", "GB/s"]]
        for size, by_name in case.get("sums", {}).items():
            for name, quantiles in by_name.items():
                median = quantiles["median"]
                rate = show_rate(int(size), median)
                rows.append([name, show_seconds(median), show_bytes(int(size)), rate])
        for name, quantiles in case.get("steps", {}).items():
            rows.append([name, show_seconds(quantiles["median"]), "", ""])
        lines += [title, *aligned(rows), ""]
    return [*lines, *(check.line() for check in checks)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
