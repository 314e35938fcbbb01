"""DistributedOptimizer with embeddings whose gradients hold only the rows that were used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from tests.parallel.torch.models import assert_equal_on_all_ranks, assert_same_parameters

several = pytest.mark.skipif("hvd.size() == 1", reason="nothing is reduced on one rank")

Make = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1)


def sparse_adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SparseAdam(net.parameters(), lr=0.1)


def embedding() -> nn.Embedding:
    torch.manual_seed(3)
    return nn.Embedding(6, 2, sparse=True).double()


def indices(rank: int) -> torch.Tensor:
    return torch.tensor([0, 0, 1 + rank % 5])


def loss_of(net: nn.Module, rank: int) -> torch.Tensor:
    return (net(indices(rank)) ** 2).sum()


def trained_alone(make: Make, users: Callable[[int], bool] = lambda rank: True) -> nn.Embedding:
    """Two steps with the average of the gradients of all ranks that use the layer."""
    net = embedding()
    alone = make(net)
    for _ in range(2):
        alone.zero_grad()
        losses = [loss_of(net, rank) for rank in range(hvd.size()) if users(rank)]
        (torch.stack(losses).sum() / hvd.size()).backward()
        alone.step()
    return net


def train(net: nn.Module, optimizer: torch.optim.Optimizer, uses: bool = True) -> None:
    for _ in range(2):
        optimizer.zero_grad()
        if uses:
            loss_of(net, hvd.rank()).backward()
        optimizer.step()


@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("make", [sgd, sparse_adam])
@pytest.mark.parametrize("as_dense", [False, True])
def test_they_are_averaged(groups: int | None, make: Make, as_dense: bool) -> None:
    net = embedding()
    train(net, hvd.DistributedOptimizer(make(net), groups=groups, sparse_as_dense=as_dense))
    assert_same_parameters(net, trained_alone(make))
    assert_equal_on_all_ranks(net)


@pytest.mark.parametrize("as_dense", [False, True])
def test_they_are_sparse_and_complete_after_synchronize(as_dense: bool) -> None:
    net, expected = embedding(), embedding()
    optimizer = hvd.DistributedOptimizer(sgd(net), sparse_as_dense=as_dense)
    loss_of(net, hvd.rank()).backward()
    optimizer.synchronize()
    torch.stack([loss_of(expected, rank) for rank in range(hvd.size())]).mean().backward()
    assert net.weight.grad.layout == torch.sparse_coo
    torch.testing.assert_close(net.weight.grad.to_dense(), expected.weight.grad.to_dense())


@several
@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("make", [sgd, sparse_adam])
def test_a_rank_may_not_use_the_layer_from_the_first_step_on(make: Make, as_dense: bool) -> None:
    net = embedding()
    optimizer = hvd.DistributedOptimizer(make(net), sparse_as_dense=as_dense)
    train(net, optimizer, uses=hvd.rank() == 0)
    assert_same_parameters(net, trained_alone(make, lambda rank: rank == 0))
    assert_equal_on_all_ranks(net)


@several
def test_a_layer_that_nobody_has_used_may_be_used_by_one_rank_later() -> None:
    net = nn.ModuleDict({"words": embedding(), "other": nn.Linear(2, 2).double()})
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    net["other"](torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert torch.equal(net["words"].weight, embedding().weight)
    optimizer.zero_grad()
    if hvd.rank() == 0:
        loss_of(net["words"], 0).backward()
    optimizer.step()
    assert_equal_on_all_ranks(net)
    assert not torch.equal(net["words"].weight, embedding().weight)


@several
def test_a_rank_may_skip_the_layer_after_the_first_step() -> None:
    net = embedding()
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(net.parameters()))
    loss_of(net, hvd.rank()).backward()
    optimizer.step()
    optimizer.zero_grad()
    if hvd.rank() == 0:
        loss_of(net, 0).backward()
    optimizer.step()
    assert_equal_on_all_ranks(net)


def densely(net: nn.Embedding) -> torch.Tensor:
    return (nn.functional.embedding(indices(hvd.rank()), net.weight) ** 2).sum()


@several
@pytest.mark.parametrize("neighbours", [False, True])
def test_a_gradient_that_is_sparse_on_some_ranks_only_is_a_mismatch(neighbours: bool) -> None:
    net = nn.Sequential(embedding())
    if neighbours:  # reduced together with it
        net.append(nn.Linear(2, 2).double())
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(prefix="mixed"))
    (loss_of(net[0], 0) if hvd.rank() == 0 else densely(net[0])).backward()
    with pytest.raises(hvd.MismatchError, match=r"sparse on others: mixed\.0\.weight"):
        optimizer.step()


@several
def test_a_gradient_that_is_sparse_on_some_ranks_only_can_be_reduced_as_a_dense_one() -> None:
    net = embedding()
    optimizer = hvd.DistributedOptimizer(sgd(net), sparse_as_dense=True)
    (loss_of(net, 0) if hvd.rank() == 0 else densely(net)).backward()
    optimizer.step()
    assert_equal_on_all_ranks(net)


@several
def test_later_gradients_take_the_layout_of_the_first() -> None:
    net = embedding()
    optimizer = hvd.DistributedOptimizer(sgd(net))
    train(net, optimizer)
    optimizer.zero_grad()
    (loss_of(net, 0) if hvd.rank() == 0 else densely(net)).backward()
    optimizer.step()
    assert net.weight.grad.layout == torch.sparse_coo
    assert_equal_on_all_ranks(net)
