"""Tensors of 1 MiB and more that ranks share are moved where they lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from sirtaki.core.world.state import current_world

COUNT = 1 << 19


def shared(*size: int) -> torch.Tensor:
    return hvd.empty(*size, dtype=torch.float32).zero_()


def direct_bytes(work: Callable[[], None]) -> int:
    """Do it until it has moved something directly: at first members may not ask for that."""
    for _ in range(17):
        before = current_world().engine.direct()[1]
        work()
        if moved := current_world().engine.direct()[1] - before:
            return moved
    return 0


def summed() -> torch.Tensor:
    mine = torch.arange(COUNT, dtype=torch.float32) % 1000
    return hvd.size() * mine + sum(range(hvd.size()))


def sum_one() -> None:
    tensor = shared(COUNT).add_(torch.arange(COUNT) % 1000 + hvd.rank())
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert torch.equal(tensor, summed())


def train_one() -> None:
    layer = nn.Linear(1024, 512, bias=False)
    layer.weight.grad = shared(512, 1024)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1.0), layer.named_parameters()
    )
    before = layer.weight.detach().clone()
    layer(torch.full((1, 1024), float(hvd.rank()))).sum().backward()
    optimizer.step()
    mean = sum(range(hvd.size())) / hvd.size()
    assert torch.equal(layer.weight, before - mean)


@pytest.mark.parametrize("work", [sum_one, train_one])
def test_sums_are_exact_and_direct(work: Callable[[], None]) -> None:
    assert direct_bytes(work) == (COUNT * 4 if hvd.size() > 1 else 0)
