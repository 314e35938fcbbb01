"""Small sums among virtual hosts with a latency: this version beside another one, by turns.

python benchmarks/small_sums.py --other PYTHON   (needs root, iproute2, an sshd and a C compiler)
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hosts import HERE, bed_of, reason_to_skip
from output import RESULTS, write_result
from targets import BEFORE, NOW, check_small_sums

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_bytes, show_seconds
from sirtaki.rendezvous.words import aligned

sys.path.insert(0, str(HERE.parent))
from tests.hosts.bed import SSH_PORT, Bed

_LIMIT = 120.0
_HOROVODRUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"

Result = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other", required=True, help="the Python of another installation")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4], help="how many (2 4)")
    parser.add_argument("--latency", type=int, default=100, help="microseconds of one way (100)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each version (5)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of small_sums.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no bed of virtual hosts here: {reason}")
    pythons = {BEFORE: args.other, NOW: sys.executable}
    facts = machine_facts()
    cases = {
        f"{hosts} hosts": measure(hosts, args.latency, args.rounds, pythons) for hosts in args.hosts
    }
    checks = check_small_sums(cases)
    print("\n".join([*aligned(rows(cases)), *(check.line() for check in checks)]))
    given = ["OTHER_PYTHON" if word == args.other else word for word in arguments]
    result = {
        "benchmark": "small_sums",
        "command": shlex.join(["python", "benchmarks/small_sums.py", *given]),
        "machine": facts,
        "latency_seconds": args.latency * 1e-6,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "small_sums.json", result)
    return 0


def measure(hosts: int, latency: int, rounds: int, pythons: dict[str, str]) -> Result:
    """Return the median seconds by bytes, way and version."""
    with bed_of(hosts, None) as (bed, folder), late_switch(bed, folder, latency):
        taken: dict[str, list[Result]] = {name: [] for name in pythons}
        for _ in range(rounds):
            for name, python in pythons.items():
                file = folder / "result.json"
                launch(bed, python, [python, str(HERE / "small_sums_rank.py"), str(file)])
                taken[name].append(json.loads(file.read_text()))
    sizes = taken[NOW][0]
    return {
        size: {
            way: {
                name: statistics.median(turn[size][way] for turn in turns)
                for name, turns in taken.items()
            }
            for way in sizes[size]
        }
        for size in sizes
    }


def launch(bed: Bed, python: str, command: Sequence[str]) -> None:
    """Run a command on each host from the first."""
    slots = ",".join(f"{host.address}:1" for host in bed.hosts)
    flags = ("-np", str(len(bed.hosts)), "-H", slots, "-p", str(SSH_PORT))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = bed.hosts[0].run(
        *(python, "-c", _HOROVODRUN, *flags, *command), timeout=_LIMIT, env=environment
    )
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def late_switch(bed: Bed, folder: Path, microseconds: int) -> Iterator[None]:
    """Let every frame between two hosts come so much later."""
    program = folder / "late_switch"
    build = ["cc", "-O2", "-o", str(program), str(HERE / "late_switch.c")]
    subprocess.run(build, check=True)
    taps = [f"tap{index}" for index in range(len(bed.hosts))]
    switch = subprocess.Popen(
        bed.switch.command(str(program), str(microseconds), *taps),
        stdout=subprocess.PIPE,
        text=True,
    )
    with switch:
        try:
            assert switch.stdout is not None
            assert switch.stdout.readline() == "up\n"
            for index, (tap, host) in enumerate(zip(taps, bed.hosts, strict=True)):
                port = f"port{host.name.removeprefix('node')}"
                bed.switch.do("ip", "link", "add", f"lan{index}", "type", "bridge")
                for device in (tap, port):
                    bed.switch.do("ip", "link", "set", device, "master", f"lan{index}", "up")
                bed.switch.do("ip", "link", "set", f"lan{index}", "up")
            yield
        finally:
            switch.kill()


def rows(cases: Result) -> list[list[str]]:
    """Return a table with its header: seconds of both versions, and what of the time is left."""
    lines = [["", "", "", BEFORE, NOW, "ratio"]]
    for hosts, by_size in cases.items():
        for size, by_way in by_size.items():
            for way, seconds in by_way.items():
                before, after = seconds[BEFORE], seconds[NOW]
                shown = [show_seconds(before), show_seconds(after), f"{after / before:.2f}"]
                lines.append([hosts, show_bytes(int(size)), way, *shown])
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
