"""Every collective once, on small tensors that show what it does.

torchrun --nproc-per-node 3 examples/distributed/collectives.py
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from start import parser, run


def mine() -> torch.Tensor:
    """This process's number, twice."""
    return torch.full((2,), float(dist.get_rank()))


def for_each_rank() -> list[torch.Tensor]:
    return [torch.zeros(2) for _ in range(dist.get_world_size())]


def broadcast() -> torch.Tensor:
    tensor = mine()
    dist.broadcast(tensor, src=0)
    return tensor


def reduce() -> torch.Tensor | None:
    tensor = mine()
    dist.reduce(tensor, dst=0, op=dist.ReduceOp.SUM)
    return tensor if dist.get_rank() == 0 else None


def all_reduce() -> torch.Tensor:
    tensor = mine()
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor


def gather() -> list[torch.Tensor] | None:
    gathered = for_each_rank() if dist.get_rank() == 0 else None
    dist.gather(mine(), gathered, dst=0)
    return gathered


def all_gather() -> list[torch.Tensor]:
    gathered = for_each_rank()
    dist.all_gather(gathered, mine())
    return gathered


def scatter() -> torch.Tensor:
    parts = [torch.full((2,), 10.0 * rank) for rank in range(dist.get_world_size())]
    received = torch.zeros(2)
    dist.scatter(received, parts if dist.get_rank() == 0 else None, src=0)
    return received


def reduce_scatter() -> torch.Tensor:
    received = torch.zeros(2)
    dist.reduce_scatter(received, [mine() + rank for rank in range(dist.get_world_size())])
    return received


def all_to_all() -> torch.Tensor:
    size, rank = dist.get_world_size(), dist.get_rank()
    sent, received = torch.arange(float(size)) + 10 * rank, torch.zeros(size)
    dist.all_to_all_single(received, sent)
    return received


def objects() -> list[object]:
    found: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": dist.get_rank()})
    return found


def within_groups() -> torch.Tensor:
    """Sum among the even and among the odd processes."""
    size, rank = dist.get_world_size(), dist.get_rank()
    groups = [dist.new_group(list(range(first, size, 2))) for first in range(min(2, size))]
    tensor = mine()
    dist.all_reduce(tensor, group=groups[rank % 2])
    return tensor


def while_computing() -> torch.Tensor:
    """Start a sum, compute, and wait for it."""
    tensor = mine()
    request = dist.all_reduce(tensor, async_op=True)
    torch.ones(100, 100).matmul(torch.ones(100, 100))
    request.wait()
    return tensor


SHOWN = (
    broadcast,
    reduce,
    all_reduce,
    gather,
    all_gather,
    scatter,
    reduce_scatter,
    all_to_all,
    objects,
    within_groups,
    while_computing,
)


def work(args: argparse.Namespace) -> None:
    for show in SHOWN:
        print(f"{show.__name__} on rank {dist.get_rank()}: {show()}", flush=True)
        dist.barrier()


if __name__ == "__main__":
    run(work, parser(__doc__.splitlines()[0]).parse_args())
