"""The ring allreduce, from sends and receives of chunks, beside the one that is built in.

    torchrun --nproc-per-node 4 examples/distributed/ring_allreduce.py --elements 100003

Every process cuts its tensor into as many chunks as there are processes. In the first round of
steps a chunk's sum travels around the ring and grows; in the second the finished sums travel.
So every process sends 2 (n - 1) / n times its tensor, whatever n is.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from start import parser, run


def ring_allreduce(tensor: torch.Tensor) -> None:
    """Sum a contiguous tensor over all processes, in place."""
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.view(-1).tensor_split(size))
    right, left = (rank + 1) % size, (rank - 1) % size

    def exchange(sent: int, received: int) -> torch.Tensor:
        arrived = torch.empty_like(chunks[received % size])
        request = dist.isend(chunks[sent % size], right)
        dist.recv(arrived, left)
        request.wait()
        return arrived

    for step in range(size - 1):
        chunks[(rank - step - 1) % size].add_(exchange(rank - step, rank - step - 1))
    for step in range(size - 1):
        chunks[(rank - step) % size].copy_(exchange(rank - step + 1, rank - step))


def work(args: argparse.Namespace) -> None:
    # Whole numbers, whose sums are the same in any order.
    generator = torch.Generator().manual_seed(dist.get_rank())
    ours = torch.randint(-1000, 1000, (args.elements,), generator=generator).float()
    built_in = ours.clone()
    ring_allreduce(ours)
    dist.all_reduce(built_in)
    assert torch.equal(ours, built_in)
    print(f"rank {dist.get_rank()}: both give {ours.sum().item():.0f}", flush=True)


if __name__ == "__main__":
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--elements", type=int, default=100_003)
    run(work, options.parse_args())
