"""Ranks that list the same named parameters in different orders train as one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from tests.parallel.torch.models import (
    assert_equal_on_all_ranks,
    assert_same_parameters,
    model,
    my_loss,
    trained_alone,
)


def listed(net: nn.Module, **options) -> torch.optim.Optimizer:
    """An optimizer for whose parameters every other rank has the reverse order."""
    named = list(net.named_parameters())
    if hvd.rank() % 2:
        named.reverse()
    inner = torch.optim.SGD([p for _, p in named], lr=0.1)
    return hvd.DistributedOptimizer(inner, named, **options)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1)


@pytest.mark.parametrize("groups", [None, 0, 1, 2, 3])
def test_gradients_meet_by_name(groups: int | None) -> None:
    net = model()
    optimizer = listed(net, groups=groups)
    for step in range(2):
        optimizer.zero_grad()
        my_loss(net, step).backward()
        optimizer.step()
    assert_same_parameters(net, trained_alone(sgd, 2))


@pytest.mark.parametrize("groups", [None, 2])
def test_steps_of_adasum_meet_by_name(groups: int | None) -> None:
    net = model()
    optimizer = listed(net, groups=groups, op=hvd.Adasum)
    my_loss(net).backward()
    optimizer.step()
    assert_equal_on_all_ranks(net)


@pytest.mark.skipif("hvd.size() == 1", reason="one rank has the same names as itself")
def test_a_number_of_groups_needs_the_same_names_on_all_ranks() -> None:
    net = model()
    named = [(f"{name} of {min(hvd.rank(), 1)}", p) for name, p in net.named_parameters()]
    inner = sgd(net)
    if hvd.rank() == 0:
        hvd.DistributedOptimizer(inner, named, groups=2)
    else:
        with pytest.raises(ValueError, match=r"groups=2.*0\.bias of 0, 0\.bias of 1"):
            hvd.DistributedOptimizer(inner, named, groups=2)
