"""The other libraries that sum a float32 array over all ranks in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sirtaki.observe.contenders import Array, Contender, Run, timed

GLOO = "Gloo"
OPEN_MPI = "Open MPI"


def join_gloo(store: Path, rank: int, size: int) -> None:
    """Make torch.distributed's default group; the ranks meet in the file `store`."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a host's name need not resolve
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(store), size), rank=rank, world_size=size
    )


def gloo() -> Contender:
    """Measure torch.distributed.all_reduce over Gloo."""

    def contender(data: Array) -> Run:
        tensor = torch.from_numpy(data)
        return timed(lambda: dist.all_reduce(tensor))

    return contender


def open_mpi(communicator: Any) -> Contender:
    """Measure mpi4py's Allreduce on the buffer itself."""
    from mpi4py import MPI

    return lambda data: timed(lambda: communicator.Allreduce(MPI.IN_PLACE, data))
