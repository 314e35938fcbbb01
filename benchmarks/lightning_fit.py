"""Lightning's `fit` with our strategy beside DDP over Gloo, two ranks of this host.

.venv-libraries/bin/python benchmarks/lightning_fit.py
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lightning_fit_rank import PROCESSOR, Cases, Work, measure
from models import Mlp
from output import RESULTS, write_result
from peers import GLOO
from targets import at_most
from train_rank import OURS

from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_MOST_TIMES = 1.0


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    models = {
        "small model": Mlp(2, 32, 16),
        f"{args.layers} layers of {args.width}": Mlp(args.layers, args.width, 32),
    }
    cases: Cases = run(measure, (Work(models, args.steps, args.rounds),), num_proc=2)[0]
    checks = [
        at_most(f"{name}: ours, in times of DDP over Gloo", _MOST_TIMES, ratio)
        for name, ratio in ratios(cases).items()
        if PROCESSOR not in name
    ]
    print("\n".join([*aligned(rows(cases)), "", *(check.line() for check in checks)]))
    result = {
        "benchmark": "lightning_fit",
        "command": shlex.join(["python", "benchmarks/lightning_fit.py", *arguments]),
        "ranks": 2,
        "steps": args.steps,
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "lightning_fit.json", result)
    return 0


def ratios(cases: Cases) -> dict[str, float]:
    """Return our median in that of DDP over Gloo."""
    return {name: by[OURS]["median"] / by[GLOO]["median"] for name, by in cases.items()}


def rows(cases: Cases) -> list[list[str]]:
    """Return the table of medians."""
    table = [["median", OURS, GLOO, "Sirtaki / Gloo"]]
    for name, ratio in ratios(cases).items():
        shown = [show_seconds(cases[name][contender]["median"]) for contender in (OURS, GLOO)]
        table.append([name, *shown, f"{ratio:.2f}"])
    return table


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--steps", type=int, default=40, help="batches of a fit (40)")
    parser.add_argument("--layers", type=int, default=4, help="of the larger model (4)")
    parser.add_argument("--width", type=int, default=1024, help="of its layers (1024)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of lightning_fit.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
