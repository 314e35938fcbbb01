"""Messages from one process to another: blocking, and while something else is done.

torchrun --nproc-per-node 2 examples/distributed/point_to_point.py
python examples/distributed/point_to_point.py --backend gloo
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from start import parser, run


def blocking() -> torch.Tensor:
    """Let the first process send to all others; returns what this one has."""
    tensor = torch.zeros(3)
    if dist.get_rank() == 0:
        tensor += 7
        for rank in range(1, dist.get_world_size()):
            dist.send(tensor, rank)
    else:
        sender = dist.recv(tensor)  # from anybody
        assert sender == 0
    return tensor


def around_a_ring() -> torch.Tensor:
    """Pass a tensor on to the next process and take one from the one before, both at once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, received = torch.full((3,), float(rank)), torch.zeros(3)
    requests = [
        dist.isend(mine, (rank + 1) % size, tag=5),
        dist.irecv(received, (rank - 1) % size, tag=5),
    ]
    # Until both are done `mine` must stay as it is and `received` is not to be read.
    for request in requests:
        request.wait()
    return received


def work(args: argparse.Namespace) -> None:
    print(f"rank {dist.get_rank()} has {blocking().tolist()} from rank 0", flush=True)
    if dist.get_world_size() > 1:
        print(f"rank {dist.get_rank()} has {around_a_ring().tolist()} from its left", flush=True)


if __name__ == "__main__":
    run(work, parser(__doc__.splitlines()[0]).parse_args())
