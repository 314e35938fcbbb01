"""How much a training step slows down on several processes: Sirtaki beside DDP over Gloo.

python benchmarks/train_step.py -np 2
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from models import Convolutions, ManySmall, Mlp, Task
from output import RESULTS, write_result
from targets import GIVEN_BACK, KEPT, check_train_step
from train_rank import AFTER, ALONE, BF16, DDP, OURS, Turns, measure_steps

from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Quantiles, show_seconds
from sirtaki.rendezvous.words import aligned

_SMALL_GRADIENTS = "160 gradients of 4 KB"


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    cases = {}
    for name, task in _tasks(args).items():
        small = name == _SMALL_GRADIENTS
        turns = Turns(args.rounds, args.steps * (30 if small else 1), args.peers)
        cases[name] = measure_case(task, turns, small, args.num_proc, args.worlds)
        print("\n".join(case_table(name, cases[name])), end="\n\n", flush=True)
    checks = check_train_step(cases) if args.peers else []
    print("\n".join(check.line() for check in checks))
    result = {
        "benchmark": "train_step",
        "command": shlex.join(["python", "benchmarks/train_step.py", *arguments]),
        "ranks": args.num_proc,
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "train_step.json", result)
    return 0


def measure_case(
    task: Task, turns: Turns, bare: bool, ranks: int, worlds: int
) -> dict[str, object]:
    """Measure one model in processes of its own; return what goes into the JSON file.

    Whether memory is kept is settled when a process starts, so worlds that differ in it take turns;
    of each contender the better half is returned.
    """
    parameters = 0
    memory: dict[str, dict[str, Quantiles]] = {KEPT: {}, GIVEN_BACK: {}}
    for _ in range(worlds):
        for name, best in memory.items():
            with tempfile.TemporaryDirectory() as folder:
                arguments = (task, turns, bare, name != GIVEN_BACK, folder)
                parameters, seconds = run(measure_steps, arguments, num_proc=ranks)[0]
            for contender, taken in seconds.items():
                if contender not in best or taken["median"] < best[contender]["median"]:
                    best[contender] = taken
    return {
        "parameters": parameters,
        "seconds": memory,
        "efficiency": {name: efficiencies(seconds) for name, seconds in memory.items()},
    }


def efficiencies(seconds: dict[str, Quantiles]) -> dict[str, float]:
    """Return a step of one process alone divided by one of several; 1 is perfect."""
    trained = (AFTER, DDP, OURS, BF16)
    return {
        name: seconds[ALONE]["median"] / seconds[name]["median"]
        for name in trained
        if name in seconds
    }


def case_table(name: str, case: dict) -> list[str]:
    """Return lines: the case, then the step's median, tenth and ninth decile, and efficiency."""
    lines = [f"{name}: {case['parameters'] / 1e6:.1f} M parameters"]
    for memory, seconds in case["seconds"].items():
        rows = [[memory, "median", "10 %", "90 %", "efficiency"]]
        for contender, quantiles in seconds.items():
            shown = [show_seconds(quantiles[key]) for key in ("median", "p10", "p90")]
            efficiency = case["efficiency"][memory].get(contender)
            rows.append([contender, *shown, "" if efficiency is None else f"{efficiency:.2f}"])
        lines += aligned(rows)
    return lines


def _tasks(args: argparse.Namespace) -> dict[str, Task]:
    small = {_SMALL_GRADIENTS: ManySmall(160, 1024)}
    if args.small_gradients:
        return small
    half = max(args.layers // 2, 1)
    return {
        f"MLP, {args.layers} layers": Mlp(args.layers, args.width, args.batch),
        f"MLP, {half} layers": Mlp(half, args.width, args.batch),
        "20 convolutions": Convolutions(args.batch),
        **small,
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-np", "--num-proc", type=int, default=2, help="ranks (2)")
    parser.add_argument("--layers", type=int, default=6, help="of the MLP (6); also half of them")
    parser.add_argument("--width", type=int, default=4096, help="of the MLP's layers (4096)")
    parser.add_argument("--batch", type=int, default=32, help="of a rank (32)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--steps", type=int, default=3, help="of a turn (3; small: 30 each)")
    parser.add_argument("--worlds", type=int, default=2, help="of each kind of memory, in turn (2)")
    parser.add_argument("--small-gradients", action="store_true", help=f"only {_SMALL_GRADIENTS}")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="Sirtaki alone")
    parser.add_argument("--output", default=str(RESULTS), help="folder of train_step.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
