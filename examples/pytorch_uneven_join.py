"""Trains on processes that have different amounts of data: who is done joins.

    horovodrun -np 2 python examples/pytorch_uneven_join.py

Without `join`, a process with more batches would wait for ever for those that have none left.
After it, a process takes part in the others' averages with zeros until all have joined.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

SLOPE = torch.tensor([[2.0], [-3.0]])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20, help="batches of the first process")
    parser.add_argument("--more", type=int, default=10, help="more batches for each later process")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    batches = args.batches + args.more * hvd.rank()

    for epoch in range(args.epochs):
        for _ in range(batches):
            inputs = torch.randn(args.batch_size, 2)
            optimizer.zero_grad()
            functional.mse_loss(model(inputs), inputs @ SLOPE).backward()
            optimizer.step()
        last = hvd.join()
        # The last one took all the steps; those that joined before it missed some.
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        print(f"epoch {epoch + 1}: {batches} batches here, rank {last} was last", flush=True)

    error = (model.weight.detach().t() - SLOPE).abs().max().item()
    errors = hvd.allgather(torch.tensor([error]))
    if hvd.rank() == 0:
        same = bool((errors == errors[0]).all())
        print(f"Largest error: {error:.4f}; the same on all processes: {same}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
