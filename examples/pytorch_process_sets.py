"""Trains two models at once, each on a process set of its own; one process is in both.

    horovodrun -np 3 python examples/pytorch_process_sets.py

With three processes, 0 and 1 train a line and 1 and 2 train a parabola. Process 1 gives data to
both. With fewer processes the sets are the same, or all there is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

Curve = Callable[[torch.Tensor], torch.Tensor]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    return parser.parse_args()


class Trainer:
    """A cubic fitted to a curve by the members of a process set."""

    def __init__(self, name: str, curve: Curve, process_set: hvd.ProcessSet, lr: float) -> None:
        self.name = name
        self.curve = curve
        self.process_set = process_set
        self.root = process_set.ranks[0]
        self.model = nn.Linear(3, 1)
        # The optimizers of process 1 are told apart by the names of their parameters.
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=lr),
            named_parameters=[(f"{name}.{n}", p) for n, p in self.model.named_parameters()],
            process_set=process_set,
        )
        for key, tensor in self.model.state_dict().items():
            hvd.broadcast_(tensor, self.root, name=f"{name}.{key}", process_set=process_set)

    def step(self, batch_size: int) -> None:
        self.optimizer.zero_grad()
        self.loss(batch_size).backward()
        self.optimizer.step()

    def loss(self, batch_size: int) -> torch.Tensor:
        x = 2 * torch.rand(batch_size, 1) - 1
        return functional.mse_loss(self.model(torch.cat([x, x**2, x**3], dim=1)), self.curve(x))

    def report(self) -> None:
        """Print the members' mean loss on the first of them."""
        loss = hvd.allreduce(
            self.loss(1000).detach(), name=f"{self.name}.loss", process_set=self.process_set
        )
        if hvd.rank() == self.root:
            ranks = self.process_set.ranks
            print(f"{self.name}: loss {loss.item():.5f} on processes {ranks}", flush=True)


def make_sets() -> list[hvd.ProcessSet]:
    """Return a set without the last process and one without the first, on all processes."""
    n = hvd.size()
    if n < 3:
        return [hvd.global_process_set, hvd.global_process_set]
    # Every process adds all sets, in the same order, also those that it is not in.
    return [hvd.add_process_set(range(n - 1)), hvd.add_process_set(range(1, n))]


def main() -> None:
    args = parse_arguments()
    hvd.init(process_sets="dynamic")
    torch.manual_seed(hvd.rank())
    curves: dict[str, Curve] = {"line": lambda x: 2 * x + 1, "parabola": lambda x: x * x - 1}
    trainers = [
        Trainer(name, curve, process_set, args.lr)
        for (name, curve), process_set in zip(curves.items(), make_sets(), strict=True)
        if process_set.included()
    ]
    for _ in range(args.steps):
        for trainer in trainers:
            trainer.step(args.batch_size)
    for trainer in trainers:
        trainer.report()
    # Whoever leaves ends the others' operations too.
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main()
