"""How long 2 of 3 processes wait when the third leaves an elastic job politely, by framework.

python benchmarks/leaving.py        (a small model on CPUs)
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from output import RESULTS, write_result
from targets import at_most

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "faults" / "elastic" / "departing.py"
_RUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
_FRAMEWORKS = ("torch", "tensorflow", "keras-torch", "keras-tensorflow", "keras-jax", "jax")
# Those whose steps are compiled once more in the new world if they read its size.
_COMPILED = ("keras-tensorflow", "keras-jax", "jax")
_LIMIT_SECONDS = 0.3
_JOB_SECONDS = 120


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="turns of each contender (10)")
    parser.add_argument("--frameworks", nargs="+", default=_FRAMEWORKS, choices=_FRAMEWORKS)
    parser.add_argument("--output", default=str(RESULTS), help="folder of leaving.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    cases = {
        f"{each}, {way}": (each, way) for each in args.frameworks for way in ("signal", "host")
    }
    reading = {f"{each}, signal, reads size()": (each, "scaled") for each in args.frameworks}
    cases |= {name: case for name, case in reading.items() if case[0] in _COMPILED}
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(args.rounds):
        for name, case in cases.items():
            taken[name].append(pause(*case))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print("the others wait when one of 3 processes leaves, or its host is removed")
    table = [["", "median", "least", "most"]]
    for name, seconds in taken.items():
        table.append([name, *map(show_seconds, (medians[name], min(seconds), max(seconds)))])
    print(*aligned(table), sep="\n")
    checks = [
        at_most(f"{name}, seconds,", _LIMIT_SECONDS, median)
        for name, median in medians.items()
        if name not in reading
    ]
    print(*(check.line() for check in checks), sep="\n")
    result = {
        "benchmark": "leaving",
        "command": shlex.join(["python", "benchmarks/leaving.py", *arguments]),
        "machine": facts,
        "cases": {name: {"median": medians[name], "all": taken[name]} for name in taken},
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "leaving.json", result)
    return 0


def pause(framework: str, way: str) -> float:
    """Run a job; return the seconds between two steps, beyond the usual, when a process leaves."""
    name, _, backend = framework.partition("-")
    environment = {
        **os.environ,
        "FRAMEWORK": name,
        "KERAS_BACKEND": backend or "torch",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", _RUN, "-np", "3", "--min-np", "1"]
    with tempfile.TemporaryDirectory() as folder:
        if way == "host":
            hosts = Path(folder, "hosts")
            hosts.write_text("127.0.0.1:1\nlocalhost:2\n")
            environment["HOSTS"] = str(hosts)
            command += ["--host-discovery-script", f"cat {hosts}"]
        elif way == "scaled":
            environment["SCALED"] = "1"
        done = subprocess.run(
            [*command, sys.executable, str(_PROGRAM)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_JOB_SECONDS,
            check=True,
        )
    return _pause_in(done.stdout)


def _pause_in(text: str) -> float:
    """Return the pause of process 1, which stays; fail if it lost or repeated a step."""
    steps = [
        (int(number), int(size), float(at))
        for number, size, at in re.findall(r"^\[1\]<stdout>:step (\d+) (\d+) (\S+)$", text, re.M)
    ]
    if [number for number, _, _ in steps] != list(range(1, len(steps) + 1)):
        raise AssertionError(f"a step was lost or repeated: {steps}")
    taken = [(after[2] - before[2], before[1] - after[1]) for before, after in pairwise(steps)]
    [changed] = [seconds for seconds, left in taken if left]
    return changed - statistics.median(seconds for seconds, left in taken if not left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
