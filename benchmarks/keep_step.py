"""What SIRTAKI_KEEP_STEP=1 costs a step, beside the copy that it does without.

python benchmarks/keep_step.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

import torch
from models import Mlp

import sirtaki.torch as hvd
from sirtaki.core.world.state import current_world
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_TASK = Mlp(3, 4096, 32)
_WORDS = {"": "without", "1": "SIRTAKI_KEEP_STEP=1"}


class Training:
    """Steps of one part."""

    def __init__(self) -> None:
        self.model, self.batch = _TASK.model(), _TASK.data()
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(self.model.parameters()),
            self.model.named_parameters(),
            reproducible=True,
        )
        self.sampler = hvd.elastic.ConstantBatchSampler(range(10**6), 1, 1)
        self.state = hvd.elastic.TorchState(
            self.model, self.optimizer, every_step=True, sampler=self.sampler
        )

    def step(self) -> tuple[float, float]:
        """Return the seconds of a step, and those of beginning it."""
        start = time.perf_counter()
        parts = self.state.parts()
        begun = time.perf_counter()
        for part in parts:
            with part:
                inputs, targets = self.batch
                torch.nn.functional.mse_loss(self.model(inputs), targets).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.sampler.record_step()
        self.state.commit()
        return time.perf_counter() - start, begun - start

    def tensors(self) -> list[torch.Tensor]:
        """Return the parameters and Adam's state."""
        params = [p.detach() for p in self.model.parameters()]
        moments = [v for p in self.model.parameters() for v in self.optimizer.state[p].values()]
        return params + moments


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="steps of each kind, in turn (15)")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    hvd.init()
    training = Training()
    training.step()
    tensors = training.tensors()
    copies = [each.clone() for each in tensors]
    world = current_world()
    taken: dict[str, list[tuple[float, float]]] = {value: [] for value in _WORDS}
    copying = []
    for _ in range(args.rounds):
        for value, times in taken.items():
            world.config = world.config._replace(keep_step=value)
            times.append(training.step())
        start = time.perf_counter()
        torch._foreach_copy_(copies, tensors)
        copying.append(time.perf_counter() - start)
    rows = [["", "a step", "its beginning"]]
    for value, times in taken.items():
        medians = map(statistics.median, zip(*times, strict=True))
        rows.append([_WORDS[value], *map(show_seconds, medians)])
    print("MLP of 50.3 M parameters, Adam, one part, medians", *aligned(rows), sep="\n")
    print(f"a copy of parameters and Adam's state: {show_seconds(statistics.median(copying))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
