"""What the programs here have in common: a small net, its data, and what they tell at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from sirtaki.core.world.world import _worlds
from sirtaki.torch.distributed import moved_by

torch.set_num_threads(1)


def network() -> nn.Module:
    """The same net on all ranks."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def rows(count: int = 48) -> TensorDataset:
    """Inputs and what is to be learned of them."""
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(
        torch.randn(count, 8, generator=generator), torch.randn(count, 4, generator=generator)
    )


def own_batches(size: int = 4) -> list[list[torch.Tensor]]:
    """This rank's rows, in batches."""
    inputs, wanted = rows().tensors
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mine = zip(inputs[rank::ranks].split(size), wanted[rank::ranks].split(size), strict=True)
    return [list(batch) for batch in mine]


def bytes_reduced() -> int:
    """The bytes of this rank's tensors in all allreduce operations of ours so far."""
    totals = [world.engine.totals(world.topology.rank) for world in _worlds if not world.closed]
    return sum(each["bytes"].get("allreduce", 0) for each in totals)


def tell(parameters: Iterable[torch.Tensor], **more: object) -> None:
    """Print, on rank 0, what was learned, whether all ranks have the same, and what moved it."""
    flat = torch.cat([parameter.detach().reshape(-1).float() for parameter in parameters])
    found = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(found, flat)
    if dist.get_rank() == 0:
        told = {
            "moved by": moved_by(),
            "equal": all(torch.equal(flat, other) for other in found),
            "learned": flat.tolist(),
            **more,
        }
        print("\n@" + json.dumps(told), flush=True)
