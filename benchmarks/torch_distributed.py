"""Programs of torch.distributed on our groups beside Gloo's, two ranks of this host.

python benchmarks/torch_distributed.py
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from models import Mlp
from output import RESULTS, write_result
from peers import GLOO
from targets import Check, check_torch_distributed
from torch_distributed_rank import HOROVOD, Cases, Work, measure
from train_rank import OURS

from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_RANKS = 2


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    model = Mlp(args.layers, args.width, args.batch)
    work = Work(args.rounds, args.steps, args.max_bytes, model)
    with tempfile.TemporaryDirectory() as folder:
        cases: Cases = run(measure, (work, folder), num_proc=_RANKS)[0]
    checks = check_torch_distributed(cases)
    print("\n".join(show(cases, checks)))
    result = {
        "benchmark": "torch_distributed",
        "command": shlex.join(["python", "benchmarks/torch_distributed.py", *arguments]),
        "ranks": _RANKS,
        "parameters": sum(p.numel() for p in model.model().parameters()),
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "torch_distributed.json", result)
    return 0


def rows(cases: Cases) -> list[list[str]]:
    """Return the table: the median of every contender, and how many times as fast ours is."""
    table = [["median", OURS, GLOO, "Gloo / Sirtaki", HOROVOD]]
    for name, by_name in cases.items():
        median = {contender: taken["median"] for contender, taken in by_name.items()}
        shown = [show_seconds(median[contender]) for contender in (OURS, GLOO)]
        last = show_seconds(median[HOROVOD]) if HOROVOD in median else ""
        table.append([name, *shown, f"{median[GLOO] / median[OURS]:.2f}", last])
    return table


def show(cases: Cases, checks: Sequence[Check]) -> list[str]:
    """Return lines: the table, then the targets."""
    return [*aligned(rows(cases)), "", *(check.line() for check in checks)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-bytes", type=int, default=64 << 20, help="longest tensor (64 MiB)")
    parser.add_argument("--layers", type=int, default=3, help="of the MLP (3)")
    parser.add_argument("--width", type=int, default=4096, help="of the MLP's layers (4096)")
    parser.add_argument("--batch", type=int, default=32, help="of a rank (32)")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each contender (8)")
    parser.add_argument("--steps", type=int, default=3, help="of training in a turn (3)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of torch_distributed.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
