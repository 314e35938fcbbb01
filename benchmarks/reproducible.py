"""What the same bits on any number of ranks cost: the kernels, and a step of two ranks.

python benchmarks/reproducible.py
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from models import Convolutions, Mlp
from output import RESULTS, write_result
from targets import check_reproducible

import sirtaki.torch as hvd
from sirtaki.core.operations import fixed_point
from sirtaki.core.operations.codes import F32
from sirtaki.launch.api import run
from sirtaki.observe.contenders import timed
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Quantiles, interleave, show_seconds
from sirtaki.rendezvous.words import aligned

Table = dict[str, Quantiles]
Task = Mlp | Convolutions

PLAIN = "DistributedOptimizer"
EXACT = "reproducible=True"
ADD = "float32 add in place"
ROUND_AND_ADD = "round and add"
ROUND_SUM = "round the sum"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of reproducible.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    mlp, convolutions = Mlp(3, 4096, 32), Convolutions(32)
    steps = {
        "MLP of 50.3 M parameters, 6 parts a rank": (mlp, 6),
        "MLP of 50.3 M parameters, 1 part a rank": (mlp, 1),
        "20 convolutions, 6 parts a rank": (convolutions, 6),
    }
    tables = {"32 M float32, 1 rank": run(_kernels, (args.rounds,), num_proc=1)[0]}
    tables |= {
        f"a step of 2 ranks: {title}": run(_steps, (*task, args.rounds), num_proc=2)[0]
        for title, task in steps.items()
    }
    for title, table in tables.items():
        first = next(iter(table.values()))["median"]
        rows = [
            [name, show_seconds(taken["median"]), f"{taken['median'] / first:.2f}"]
            for name, taken in table.items()
        ]
        print(title, *aligned(rows), sep="\n", end="\n\n")
    checks = check_reproducible(tables)
    print(*(check.line() for check in checks), sep="\n")
    result = {
        "benchmark": "reproducible",
        "command": shlex.join(["python", "benchmarks/reproducible.py", *arguments]),
        "machine": facts,
        "tables": tables,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "reproducible.json", result)
    return 0


def _kernels(rounds: int) -> Table:
    hvd.init()
    torch.set_num_threads(1)
    count = 32_000_000
    one, other = torch.randn(count), torch.randn(count)
    sums = torch.zeros(count, dtype=torch.int64)

    def round_and_add() -> None:
        fixed_point.add_fixed(sums.data_ptr(), other.data_ptr(), F32, count, 30, fixed_point.ADD)

    def round_sum() -> None:
        fixed_point.round_fixed(one.data_ptr(), sums.data_ptr(), F32, count, 30, 12)

    runs = {
        ADD: timed(lambda: one.add_(other)),
        ROUND_AND_ADD: timed(round_and_add),
        ROUND_SUM: timed(round_sum),
    }
    return interleave(runs, dict.fromkeys(runs, 3), rounds)


def _steps(task: Task, parts: int, rounds: int) -> Table:
    hvd.init()
    torch.set_num_threads(1)
    runs = {PLAIN: timed(_plain(task, parts)), EXACT: timed(_exact(task, parts))}
    return interleave(runs, dict.fromkeys(runs, 2), rounds)


def _plain(task: Task, parts: int) -> Any:
    model, (inputs, targets) = task.model(), task.data()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        ((f"plain.{name}", p) for name, p in model.named_parameters()),
        backward_passes_per_step=parts,
    )

    def step() -> None:
        for _ in range(parts):
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _exact(task: Task, parts: int) -> Any:
    model, (inputs, targets) = task.model(), task.data()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        ((f"exact.{name}", p) for name, p in model.named_parameters()),
        reproducible=True,
    )
    sampler = hvd.elastic.ConstantBatchSampler(range(10**6), 1, parts * hvd.size())
    state = hvd.elastic.TorchState(model, optimizer, every_step=True, sampler=sampler)

    def step() -> None:
        for part in state.parts():
            with part:
                torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        sampler.record_step()
        state.commit()

    return step


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
