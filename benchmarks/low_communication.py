"""Training over slow networks with rare exchanges: bytes, times, and what is learnt.

python benchmarks/low_communication.py        (needs root, iproute2 and an sshd)
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hosts import HERE, bed_of, launch, reason_to_skip
from low_communication_rank import DILOCO, FLOAT32, LARGE, OPTIONS, RATE, SMALL, train
from output import RESULTS, write_result
from targets import Check, check_low_communication

from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

Result = dict[str, Any]

_STEPS = 2000
_SEEDS = (0, 1, 2)
_RATES = (4e-3, 8e-3, 16e-3)
_RANKS = 4


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="turns of each contender (8)")
    parser.add_argument("--steps", type=int, default=_STEPS, help=f"of a training ({_STEPS})")
    parser.add_argument(
        "--only", nargs="+", choices=_CASES, help="measure these, and keep the others of the file"
    )
    parser.add_argument("--output", default=str(RESULTS), help="folder of low_communication.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no bed of virtual hosts here: {reason}")
    shown = {**OPTIONS, "compression": OPTIONS["compression"].__qualname__}
    configuration = {
        "DiLoCo": {**shown, "rate": RATE},
        "small": SMALL._asdict(),
        "large": LARGE._asdict(),
    }
    file = Path(args.output) / "low_communication.json"
    kept: Result = json.loads(file.read_text()) if args.only else {"cases": {}}
    if args.only and kept["configuration"] != configuration:
        raise SystemExit(f"{file} is of another configuration: measure all cases")
    measured = {name: _CASES[name](args) for name in args.only or _CASES}
    cases = {name: {**kept["cases"], **measured}[name] for name in _CASES}
    checks = check_low_communication(cases)
    print("\n".join(show(cases, checks)))
    command = shlex.join(["python", "benchmarks/low_communication.py", *arguments])
    result = {
        "benchmark": "low_communication",
        "command": "; ".join(filter(None, [kept.get("command"), command])),
        "machine": machine_facts(),
        "configuration": configuration,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(file, result)
    if "losses" in measured:
        file.with_suffix(".trainings").unlink()
    return 0


def measure(hosts: int, rate: str, what: str, rounds: int) -> Result:
    """Run low_communication_rank.py on every host; return what rank 0 measured."""
    with bed_of(hosts, rate) as (bed, folder):
        command = [sys.executable, str(HERE / "low_communication_rank.py"), str(folder), what]
        launch(bed, 1, *command, str(rounds))
        result: Result = json.loads((folder / "result.json").read_text())
        return result


def losses(steps: int, done: Path) -> Result:
    """Train without a limit on the network: synchronous at three rates, and DiLoCo.

    The best rate is the one whose worst seed learns most: at a high one some trainings diverge.

    done: keeps the losses of trainings, so that a run that was interrupted need not repeat them.
    """
    known: dict[str, float] = json.loads(done.read_text()) if done.exists() else {}

    def loss(name: str, seed: int, rate: float) -> float:
        training = f"{name}, seed {seed}, rate {rate}, {steps} steps, {SMALL}"
        training += f", {OPTIONS}" if name == DILOCO else ""
        if training not in known:
            known[training] = run(train, (name, seed, rate, steps), num_proc=_RANKS)[0]["loss"]
            done.write_text(json.dumps(known, indent=1))
        print(f"{training}: {known[training]:.4f}", flush=True)
        return known[training]

    tried = {rate: [loss(FLOAT32, _SEEDS[0], rate)] for rate in _RATES}
    while len(tried[best := min(tried, key=lambda rate: max(tried[rate]))]) < len(_SEEDS):
        tried[best].append(loss(FLOAT32, _SEEDS[len(tried[best])], best))
    return {
        "steps": steps,
        "rates": {str(rate): found for rate, found in tried.items()},
        "rate": best,
        FLOAT32: tried[best],
        DILOCO: [loss(DILOCO, seed, RATE) for seed in _SEEDS],
    }


# By their names; each is measured with all of its contenders at once.
_CASES: dict[str, Callable[[argparse.Namespace], Result]] = {
    "steps": lambda args: measure(_RANKS, "100mbit", "steps", args.rounds),
    "pair": lambda args: measure(2, "1gbit", "pair", max(1, args.rounds // 2)),
    "losses": lambda args: losses(args.steps, Path(args.output, "low_communication.trainings")),
}


def show(cases: Result, checks: Sequence[Check]) -> list[str]:
    """Return lines: a table for each case, then the targets."""
    lines = []
    for title, table in tables(cases).items():
        lines += [title, *aligned(table), ""]
    return [*lines, *(check.line() for check in checks)]


def tables(cases: Result) -> dict[str, list[list[str]]]:
    """Return the tables of the benchmark by their titles."""
    steps, pair, learnt = cases["steps"], cases["pair"], cases["losses"]
    first, alone = next(iter(steps["contenders"].values())), _seconds(pair, "no exchange")
    sent = steps["contenders"][FLOAT32]["bytes"]
    return {
        f"{_RANKS} hosts at 100 Mbit/s, {steps['parameters']} parameters": [
            ["", "step, mean", "of no exchange's", "KB a step", "float32's to its"],
            *(
                [
                    name,
                    show_seconds(taken["mean"]),
                    f"{taken['mean'] / first['mean']:.2f}",
                    f"{taken['bytes'] / 1000:.1f}",
                    f"{sent / taken['bytes']:.0f}" if taken["bytes"] else "",
                ]
                for name, taken in steps["contenders"].items()
            ),
        ],
        f"2 hosts at 1 Gbit/s, {pair['parameters']} parameters": [
            ["", "step, mean", "speed-up over one host"],
            *(
                [name, show_seconds(taken["mean"]), f"{2 * alone / taken['mean']:.2f}"]
                for name, taken in pair["contenders"].items()
                if taken["bytes"]
            ),
        ],
        f"Loss of held-out text after {learnt['steps']} steps of {_RANKS} ranks": [
            ["", *(f"seed {seed}" for seed in _SEEDS), "mean"],
            *(
                [name, *(f"{one:.4f}" for one in found), f"{statistics.mean(found):.4f}"]
                for name, found in ((name, learnt[name]) for name in (FLOAT32, DILOCO))
            ),
        ],
    }


def _seconds(case: Result, name: str) -> float:
    return float(case["contenders"][name]["mean"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
