"""A small model, each rank's data for it, and its training as one process would do it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

import sirtaki.torch as hvd

Data = tuple[torch.Tensor, torch.Tensor]


def model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def data_of(rank: int, step: int = 0, dtype: torch.dtype = torch.float64) -> Data:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(5, 4, generator=generator, dtype=dtype)
    targets = torch.randn(5, 3, generator=generator, dtype=dtype)
    return inputs, targets


def loss_of(net: nn.Module, data: Data) -> torch.Tensor:
    # PyTorch 2.4 has no `mse_loss` of bfloat16.
    return (net(data[0]) - data[1]).square().mean()


def my_loss(net: nn.Module, step: int = 0) -> torch.Tensor:
    dtype = next(net.parameters()).dtype
    return loss_of(net, data_of(hvd.rank(), step, dtype))


def everybodys_loss(net: nn.Module, step: int = 0, ranks: list[int] | None = None) -> torch.Tensor:
    """The mean of the ranks' losses: its gradient is what the ranks' average has to be."""
    dtype = next(net.parameters()).dtype
    ranks = list(range(hvd.size())) if ranks is None else ranks
    losses = [loss_of(net, data_of(rank, step, dtype)) for rank in ranks]
    return torch.stack(losses).mean()


def trained_alone(
    make: Callable[[nn.Module], torch.optim.Optimizer],
    steps: int,
    loss: Callable[[nn.Module, int], torch.Tensor] = everybodys_loss,
    net: nn.Module | None = None,
) -> nn.Module:
    """The model after some steps with the gradient of all ranks' losses, without any exchange."""
    net = copy.deepcopy(net) if net is not None else model()
    optimizer = make(net)
    for step in range(steps):
        optimizer.zero_grad()
        loss(net, step).backward()
        optimizer.step()
    return net


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def assert_same_parameters(net: nn.Module, expected: nn.Module, **tolerance: float) -> None:
    pairs = zip(net.named_parameters(), expected.parameters(), strict=True)
    for (name, mine), theirs in pairs:
        torch.testing.assert_close(
            mine, theirs, msg=lambda text, name=name: f"{name}: {text}", **tolerance
        )


def assert_equal_on_all_ranks(net: nn.Module) -> None:
    for name, parameter in net.named_parameters():
        everywhere = hvd.allgather(parameter.detach()[None].contiguous())
        assert (everywhere == everywhere[0]).all(), f"{name} differs between ranks"


def distributed(net: nn.Module, **options) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(sgd(net), named_parameters=net.named_parameters(), **options)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        optimizer.zero_grad()
        my_loss(net, step).backward()
        optimizer.step()
