"""Compressed gradients between four hosts: bytes sent, time of a step, and what is learnt.

python benchmarks/compressed_step.py        (needs root, iproute2, an sshd, and scikit-learn)
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hosts import HERE, bed_of, launch, reason_to_skip
from output import RESULTS, write_result
from targets import Check, check_compressed_step

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

Result = dict[str, Any]

_HOSTS = 4
_RATES = {"1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
# And how many rounds make one: what has short steps takes many to learn.
_TASKS = {"digits": ("LeNet-5", 5), "transformer": ("transformer", 1)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="turns of each contender (10)")
    parser.add_argument("--steps", type=int, default=10, help="steps timed in a turn (10)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of compressed_step.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no bed of virtual hosts here: {reason}")
    facts = machine_facts()
    cases = {
        f"{title}, {_HOSTS} hosts at {speed}": measure(what, rate, times * args.rounds, args.steps)
        for what, (title, times) in _TASKS.items()
        for speed, rate in _RATES.items()
    }
    checks = check_compressed_step(cases)
    print("\n".join(show(cases, checks)))
    result = {
        "benchmark": "compressed_step",
        "command": shlex.join(["python", "benchmarks/compressed_step.py", *arguments]),
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "compressed_step.json", result)
    return 0


def measure(what: str, rate: str, rounds: int, steps: int) -> Result:
    """Run compressed_step_rank.py on every host; return what rank 0 measured."""
    with bed_of(_HOSTS, rate) as (bed, folder):
        command = [sys.executable, str(HERE / "compressed_step_rank.py"), str(folder), what]
        launch(bed, 1, *command, str(rounds), str(steps))
        result: Result = json.loads((folder / "result.json").read_text())
        return result


def show(cases: Result, checks: Sequence[Check]) -> list[str]:
    """Return lines: a table for each case, then the targets."""
    lines = []
    for title, case in cases.items():
        lines += [f"{title}: {case['parameters']} parameters, {case['steps']} steps"]
        lines += [*aligned([HEADER, *rows(case)]), ""]
    return [*lines, *(check.line() for check in checks)]


HEADER = ["", "step", "of float32's", "KB sent a step", "of float32's", "final loss"]


def rows(case: Result) -> list[list[str]]:
    """Return a row for each contender."""
    by_name = case["contenders"]
    first = by_name["float32"]
    return [
        [
            name,
            show_seconds(taken["median"]),
            f"{taken['median'] / first['median']:.2f}",
            f"{taken['bytes'] / 1000:.0f}",
            f"{taken['bytes'] / first['bytes']:.2f}",
            f"{taken['loss']:.4f}",
        ]
        for name, taken in by_name.items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
