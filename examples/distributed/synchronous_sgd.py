"""Synchronous SGD by hand: every process has a part of the digits, gradients are averaged.

    torchrun --nproc-per-node 2 examples/distributed/synchronous_sgd.py

It learns what one process learns from the whole batch, to rounding; with --compare it shows that.
Needs scikit-learn, which brings the digits.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from start import parser, run
from torch import nn
from torch.nn import functional


class Part(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Every n-th image of a data set, beginning with this process's number."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, first: int, step: int) -> None:
        self.images, self.labels = images[first::step], labels[first::step]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index], self.labels[index]


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).double()


def average_gradients(model: nn.Module) -> None:
    """Let every process have the mean of all processes' gradients."""
    size = dist.get_world_size()
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad /= size


def train(part: Part, batch_size: int, epochs: int, distributed: bool) -> nn.Module:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = torch.utils.data.DataLoader(part, batch_size)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            if distributed:
                average_gradients(model)
            optimizer.step()
    return model


def work(args: argparse.Namespace) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    digits = load_digits()
    # As many as all processes can share evenly, batch by batch.
    count = len(digits.target) // (args.batch_size * size) * args.batch_size * size
    images = torch.tensor(digits.data[:count]) / 16
    labels = torch.tensor(digits.target[:count])
    part = Part(images, labels, rank, size)
    model = train(part, args.batch_size, args.epochs, distributed=True)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).double().mean().item()
    if rank == 0:
        print(f"{size} processes: {right:.1%} of {count} digits are recognised", flush=True)
    if args.compare:
        alone = train(Part(images, labels, 0, 1), args.batch_size * size, args.epochs, False)
        pairs = zip(model.parameters(), alone.parameters(), strict=True)
        furthest = max((a - b).abs().max().item() for a, b in pairs)
        print(f"rank {rank}: at most {furthest:.1e} away from one process", flush=True)
        assert furthest < 1e-9


if __name__ == "__main__":
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--epochs", type=int, default=20)
    options.add_argument("--batch-size", type=int, default=32, help="images a step and process")
    options.add_argument("--compare", action="store_true", help="also train one process alone")
    run(work, options.parse_args())
