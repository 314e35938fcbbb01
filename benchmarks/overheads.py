"""What Sirtaki costs beside the reduction itself: Adasum, one rank's training step, joining.

python benchmarks/overheads.py
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from models import Convolutions
from output import RESULTS, write_result
from train_rank import training_step

import sirtaki.torch as hvd
from sirtaki.launch.api import run
from sirtaki.observe.contenders import timed
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Quantiles, interleave
from sirtaki.observe.report import aligned, show_seconds

_MIB = 1 << 20
_REJOINED = 105


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="of the array summed (64)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of overheads.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    tables = {
        f"{args.mib} MiB of float32, 2 ranks": run(_adasum, (args.mib, args.rounds), num_proc=2)[0],
        "a step of 20 convolutions, batch 2, 1 rank": run(_step, (args.rounds,), num_proc=1)[0],
        f"{_REJOINED} times init() and shutdown(), 2 ranks": run(_rejoin, num_proc=2)[0],
        "init() on the links of the last world, 4 ranks": run(_renew, num_proc=4)[0],
    }
    for title, table in tables.items():
        rows = [[name, show_seconds(taken["median"])] for name, taken in table.items()]
        print(title, *aligned(rows), sep="\n", end="\n\n")
    result = {
        "benchmark": "overheads",
        "command": shlex.join(["python", "benchmarks/overheads.py", *arguments]),
        "machine": facts,
        "tables": tables,
    }
    write_result(Path(args.output) / "overheads.json", result)
    return 0


def _adasum(mib: int, rounds: int) -> dict[str, Quantiles]:
    """Measure Adasum beside a sum of the same array."""
    torch.set_num_threads(1)
    hvd.init()
    data = torch.zeros(mib * _MIB // 4)
    runs = {
        "Sum": timed(lambda: hvd.allreduce_(data, op=hvd.Sum)),
        "Adasum": timed(lambda: hvd.allreduce_(data, op=hvd.Adasum)),
    }
    result = interleave(runs, dict.fromkeys(runs, 5), rounds)
    hvd.shutdown()
    return result


def _step(rounds: int) -> dict[str, Quantiles]:
    """Measure a wrapped optimizer beside the plain one in a world of one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    task = Convolutions(2)
    runs = {}
    for name in ("plain optimizer", "wrapped optimizer"):
        model = task.model()
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if name == "wrapped optimizer":
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        runs[name] = training_step(model, optimizer, task.data())
    # Short turns: the difference is small beside what other load does to a long one.
    result = interleave(runs, dict.fromkeys(runs, 4), 10 * rounds)
    hvd.shutdown()
    return result


def _rejoin() -> dict[str, Quantiles]:
    """Measure joining a world and leaving it, many times in one process."""
    start = time.perf_counter()
    for _ in range(_REJOINED):
        hvd.init()
        hvd.shutdown()
    seconds = time.perf_counter() - start
    return {"all": dict.fromkeys(("median", "p10", "p90"), seconds)}


def _renew() -> dict[str, Quantiles]:
    """Measure joining a world when the last one's links are still there."""
    seconds = []
    for _ in range(_REJOINED):
        hvd.init()
        hvd.barrier()
        hvd.shutdown()
        start = time.perf_counter()
        hvd.init()
        seconds.append(time.perf_counter() - start)
        hvd.shutdown()
    tenths = statistics.quantiles(seconds, n=10)
    return {"one": {"median": tenths[4], "p10": tenths[0], "p90": tenths[8]}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
