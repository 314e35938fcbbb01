"""Compares Adasum with averaging on a small model, with the learning rate of one process.

    horovodrun -np 4 python examples/pytorch_adasum.py

An average needs a longer step with more processes, and the right length is to be found by trying.
Adasum adds up what the processes' steps do not have in common and averages what they have, so it
keeps the learning rate of one process.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--lr", type=float, default=0.05, help="of one process")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send float16")
    return parser.parse_args()


def show_the_rule() -> None:
    """Print what Adasum makes of steps in one direction, and in directions at right angles."""
    rank, n = hvd.rank(), hvd.size()
    same = hvd.allreduce(torch.ones(n), op=hvd.Adasum, name="same")
    across = hvd.allreduce(torch.eye(n)[rank], op=hvd.Adasum, name="across")
    if rank == 0:
        print(f"Adasum of {n} equal steps: {same[0].item():.3f} of one (their average)")
        print(f"Adasum of {n} steps at right angles: {across.tolist()} (their sum)", flush=True)


def train(op: int, args: argparse.Namespace) -> float:
    """Return the loss, on data that all processes share, after training from the same start."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(20, 10), nn.Tanh(), nn.Linear(10, 1))
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 1))
    test = torch.randn(500, 20)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=op,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(1 + hvd.rank())  # other data on each process
    for _ in range(args.steps):
        inputs = torch.randn(args.batch_size, 20)
        with torch.no_grad():
            targets = teacher(inputs)
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        return functional.mse_loss(model(test), teacher(test)).item()


def main() -> None:
    args = parse_arguments()
    hvd.init()
    show_the_rule()
    losses = {name: train(getattr(hvd, name), args) for name in ("Average", "Adasum")}
    if hvd.rank() == 0:
        for name, loss in losses.items():
            print(f"{name}: loss {loss:.4f} after {args.steps} steps", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
