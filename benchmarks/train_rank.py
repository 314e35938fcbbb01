"""One rank of train_step.py: the same training alone, with DDP over Gloo, and with Sirtaki."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from models import Batch, Task
from peers import join_gloo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sirtaki.torch as hvd
from sirtaki.observe.contenders import Run, timed
from sirtaki.observe.measure import Quantiles, interleave

ALONE = "alone"
BARRIER = "barrier only"
AFTER = "Sirtaki, after backward"
DDP = "DDP, Gloo"
OURS = "Sirtaki"
BF16 = "Sirtaki, bf16"
RAW_GLOO = "all_reduce, Gloo"
COALESCED = "all_reduce_coalesced, Gloo"
RAW_OURS = "allreduce_async_, Sirtaki"
GROUPED = "grouped_allreduce_, Sirtaki"


@dataclass(frozen=True)
class Turns:
    """Rounds of measuring, steps of a contender in its turn of a round; with peers or not."""

    rounds: int
    steps: int
    peers: bool = True


def measure_steps(
    task: Task, turns: Turns, bare: bool, keeps: bool, folder: str
) -> tuple[int, dict[str, Quantiles]]:
    """Return the number of parameters, and the seconds of a step by contender.

    bare: also measure more ways to reduce all gradients without a training around it. keeps:
    whether the C library keeps freed memory. folder: one that all ranks share.
    """
    os.environ["SIRTAKI_KEEP_MEMORY"] = str(int(keeps))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    if turns.peers:
        join_gloo(Path(folder) / "gloo", hvd.rank(), hvd.size())
    batch = task.data()
    runs = {
        ALONE: _alone(task.model(), batch),
        BARRIER: _then(task.model(), batch, lambda _: hvd.barrier()),
        AFTER: _then(task.model(), batch, _reduce_gradients),
        OURS: with_horovod(task.model(), batch),
        BF16: with_horovod(task.model(), batch, hvd.Compression.bf16),
    }
    if turns.peers:
        runs[DDP] = _ddp(task.model(), batch)
    with torch.device("meta"):  # shapes without memory
        parameters = list(task.model().parameters())
    gradients = [torch.zeros(p.shape) for p in parameters]
    runs[GROUPED] = timed(lambda: hvd.grouped_allreduce_(gradients, name="bare"))
    if bare:
        runs |= _bare(gradients, turns.peers)
    result = interleave(runs, dict.fromkeys(runs, turns.steps), turns.rounds)
    if turns.peers:
        dist.destroy_process_group()
    hvd.shutdown()
    return sum(p.numel() for p in parameters), result


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> Run:
    """Return what times steps of training on this batch."""
    inputs, targets = batch

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    return timed(step)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return what trains a model."""
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def _alone(model: nn.Module, batch: Batch) -> Run:
    run = training_step(model, sgd(model), batch)
    # The other ranks sleep in the barrier that follows.
    return run if hvd.rank() == 0 else lambda _: []


def _then(model: nn.Module, batch: Batch, meet: Callable[[nn.Module], object]) -> Run:
    """Training in which the ranks meet between backward and the optimizer's step."""
    optimizer = sgd(model)
    optimizer.register_step_pre_hook(lambda *_: meet(model))
    return training_step(model, optimizer, batch)


def _reduce_gradients(model: nn.Module) -> None:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    hvd.grouped_allreduce_(gradients, name="after")


def _ddp(model: nn.Module, batch: Batch) -> Run:
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return training_step(wrapped, sgd(model), batch)


def with_horovod(model: nn.Module, batch: Batch, compression: Any = hvd.Compression.none) -> Run:
    """Training with hvd.DistributedOptimizer."""
    optimizer = hvd.DistributedOptimizer(
        sgd(model), named_parameters=model.named_parameters(), compression=compression
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return training_step(model, optimizer, batch)


def _bare(gradients: list[torch.Tensor], peers: bool) -> dict[str, Run]:
    def gloo() -> None:
        for work in [dist.all_reduce(g, async_op=True) for g in gradients]:
            work.wait()

    def coalesced() -> None:
        dist.all_reduce_coalesced(gradients)

    def ours() -> None:
        names = enumerate(gradients)
        for handle in [hvd.allreduce_async_(g, name=f"bare.{i}") for i, g in names]:
            hvd.synchronize(handle)

    others = {RAW_GLOO: timed(gloo), COALESCED: timed(coalesced)} if peers else {}
    return {**others, RAW_OURS: timed(ours)}
