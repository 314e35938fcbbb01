"""`torch.distributed` on `cpu:sirtaki,cuda:nccl` and on `sirtaki` alone: groups, DDP and FSDP."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import sirtaki.torch  # noqa: F401

COUNT = 1000


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)]
    return torch.nn.Sequential(*layers).cuda()


def inputs(rank: int) -> torch.Tensor:
    return torch.arange(8 * 64, device="cuda", dtype=torch.float32).view(8, 64) / 512 + rank


def train(model: torch.nn.Module, parts: list[torch.Tensor]) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.stack([model(part).square().mean() for part in parts]).mean()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def check_groups(rank: int, size: int) -> None:
    for device in ("cpu", "cuda"):
        tensor = torch.full((COUNT,), rank + 1.0, device=device)
        dist.all_reduce(tensor)
        assert bool((tensor == size * (size + 1) / 2).all()), device
        gathered = [torch.empty(COUNT, device=device) for _ in range(size)]
        dist.all_gather(gathered, torch.full((COUNT,), float(rank), device=device))
        assert [float(one[0]) for one in gathered] == list(range(size)), device
        dist.barrier()
    half = dist.new_group([0])
    if rank == 0:
        dist.all_reduce(torch.ones(3, device="cuda"), group=half)


def main() -> None:
    backend = sys.argv[1]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    check_groups(rank, size)
    alone = train(build(), [inputs(one) for one in range(size)])
    loss = torch.tensor(train(DistributedDataParallel(build()), [inputs(rank)]), device="cuda")
    dist.all_reduce(loss)
    assert abs(float(loss) / size - alone) < 1e-4 * alone, (float(loss) / size, alone)
    sharded = build()
    fully_shard(sharded)
    loss = torch.tensor(train(sharded, [inputs(rank)]), device="cuda")
    dist.all_reduce(loss)
    assert abs(float(loss) / size - alone) < 1e-4 * alone, (float(loss) / size, alone)
    if rank == 0:
        print(f"{backend}: groups, DDP and FSDP at {size} ranks as one process", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
