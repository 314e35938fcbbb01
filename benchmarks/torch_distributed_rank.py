"""One rank of torch_distributed.py: the same calls on a group of ours and on one of Gloo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from models import Mlp
from peers import GLOO, join_gloo
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from train_rank import OURS, sgd, training_step, with_horovod

import sirtaki.torch as hvd
from sirtaki.observe.contenders import Run, timed
from sirtaki.observe.measure import Quantiles, interleave, show_bytes

DDP = "DDP step"
FSDP2 = "FSDP2 step"
ALL_REDUCE = "all_reduce"
ROUND_TRIP = "send, recv and back"
MOVES = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
HOROVOD = "hvd.DistributedOptimizer"

Group = dist.ProcessGroup
# By what is called and then by who is called.
Cases = dict[str, dict[str, Quantiles]]

_MIB = 1 << 20
_SECONDS = 0.04


@dataclass(frozen=True)
class Work:
    """What is measured: rounds of all contenders, the longest message, and the model of steps."""

    rounds: int
    steps: int
    largest: int
    model: Mlp


def measure(work: Work, folder: str) -> Cases:
    """Return the seconds of each call and step; every rank of a world calls it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    join_gloo(Path(folder) / "gloo", hvd.rank(), hvd.size())
    groups = {OURS: dist.new_group(backend="sirtaki"), GLOO: dist.group.WORLD}
    cases = {
        f"{name}, {show_bytes(size)}": _interleaved(call, groups, size, work.rounds)
        for name, call, sizes in _CALLS
        for size in sizes
        if size <= work.largest
    }
    batch = work.model.data()

    def steps(runs: dict[str, Run]) -> dict[str, Quantiles]:
        return interleave(runs, dict.fromkeys(runs, work.steps), work.rounds)

    runs = {name: ddp_step(work.model.model(), group, batch) for name, group in groups.items()}
    cases[DDP] = steps({**runs, HOROVOD: with_horovod(work.model.model(), batch)})
    del runs
    cases[FSDP2] = steps(
        {name: fsdp_step(work.model.model(), group, batch) for name, group in groups.items()}
    )
    dist.destroy_process_group()
    hvd.shutdown()
    return cases


def _interleaved(
    call: Callable[[Group, int], Run], groups: dict[str, Group], size: int, rounds: int
) -> dict[str, Quantiles]:
    runs = {name: call(group, size) for name, group in groups.items()}
    return interleave(runs, {name: _repeats(run) for name, run in runs.items()}, rounds)


def _repeats(run: Run) -> int:
    """Return how often to repeat in one turn, the same on both ranks."""
    hvd.barrier()
    estimate = torch.tensor([np.median(run(4)[1:])])
    slowest = hvd.allreduce(estimate, op=hvd.Max).item()
    return int(np.clip(_SECONDS / slowest, 2, 1000))


def all_reduce(group: Group, size: int) -> Run:
    """Sum a float32 tensor in place."""
    tensor = torch.zeros(size // 4)
    return timed(lambda: dist.all_reduce(tensor, group=group))


def round_trip(group: Group, size: int) -> Run:
    """Send a message of rank 0 to rank 1, and one back."""
    tensor, peer = torch.zeros(size // 4), 1 - hvd.rank()
    calls = [dist.send, dist.recv] if hvd.rank() == 0 else [dist.recv, dist.send]

    def call() -> None:
        for each in calls:
            each(tensor, peer, group=group)

    return timed(call)


def all_gather(group: Group, size: int) -> Run:
    """Give all ranks a tensor of `size` bytes, to which each adds its part."""
    whole = torch.zeros(size // 4)
    part = torch.zeros(whole.numel() // hvd.size())
    return timed(lambda: dist.all_gather_into_tensor(whole, part, group=group))


def reduce_scatter(group: Group, size: int) -> Run:
    """Sum a tensor of `size` bytes and give each rank its part."""
    whole = torch.zeros(size // 4)
    part = torch.zeros(whole.numel() // hvd.size())
    return timed(lambda: dist.reduce_scatter_tensor(part, whole, group=group))


def all_to_all(group: Group, size: int) -> Run:
    """Exchange equal parts of a tensor of `size` bytes."""
    received, sent = torch.zeros(size // 4), torch.zeros(size // 4)
    return timed(lambda: dist.all_to_all_single(received, sent, group=group))


_CALLS = (
    (ALL_REDUCE, all_reduce, (4, _MIB, 16 * _MIB, 64 * _MIB)),
    (ROUND_TRIP, round_trip, (4, 64 * _MIB)),
    (MOVES[0], all_gather, (16 * _MIB,)),
    (MOVES[1], reduce_scatter, (16 * _MIB,)),
    (MOVES[2], all_to_all, (16 * _MIB,)),
)


def ddp_step(model: nn.Module, group: Group, batch: tuple[torch.Tensor, torch.Tensor]) -> Run:
    """A step of training with DistributedDataParallel."""
    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    return training_step(wrapped, sgd(model), batch)


def fsdp_step(model: nn.Module, group: Group, batch: tuple[torch.Tensor, torch.Tensor]) -> Run:
    """A step of training with every layer's parameters sharded by FSDP2."""
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return training_step(model, sgd(model), batch)
