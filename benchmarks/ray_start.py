"""From call to first step on Ray: `RayExecutor` on two actors beside two bare actors.

.venv-ray/bin/python benchmarks/ray_start.py

Both import PyTorch. Ours also form a world, and reduce a tensor.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import ray
from output import RESULTS, write_turns
from targets import at_most

from horovod.ray import RayExecutor
from sirtaki.observe.machine import machine_facts

_MOST_TIMES = 1.2
_BARE, _OURS = "two bare actors", "RayExecutor"


def first_step() -> float:
    import torch

    import horovod.torch as hvd

    hvd.init()
    return float(hvd.allreduce(torch.ones(4), op=hvd.Sum).sum())


class Bare:
    def step(self) -> float:
        import torch

        return float(torch.ones(4).sum())


def of_executor() -> None:
    executor = RayExecutor(None, num_workers=2)
    executor.start()
    assert executor.run(first_step) == [8.0, 8.0]
    executor.shutdown()


def of_bare_actors() -> None:
    actors = [ray.remote(Bare).options(num_cpus=1).remote() for _ in range(2)]
    assert ray.get([actor.step.remote() for actor in actors]) == [4.0, 4.0]
    for actor in actors:
        ray.kill(actor)


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    passed = time.perf_counter() - began
    # What was killed ends, and Ray makes ready the processes that it keeps.
    time.sleep(3)
    return passed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of ray_start.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    taken: dict[str, list[float]] = {_BARE: [], _OURS: []}
    for _ in range(args.rounds):
        taken[_BARE].append(seconds(of_bare_actors))
        taken[_OURS].append(seconds(of_executor))
    ratio = statistics.median(taken[_OURS]) / statistics.median(taken[_BARE])
    check = at_most("RayExecutor's time, in that of bare actors", _MOST_TIMES, ratio)
    write_turns(Path(args.output) / "ray_start.json", arguments, facts, taken, check)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
