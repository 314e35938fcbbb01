"""Guards name the rank and the tensor; a shared batch has one mean whatever the size."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.core.errors import DivergedError, NotFiniteError


def test_equal_parameters_pass() -> None:
    hvd.guards.require_equal(torch.nn.Linear(3, 2))


@pytest.mark.skipif("hvd.size() < 2")
def test_a_bit_that_differs_is_found_on_all_ranks() -> None:
    model = torch.nn.Linear(3, 2)
    if hvd.rank() == hvd.size() - 1:
        with torch.no_grad():
            model.bias.view(torch.int32)[1] ^= 1
    with pytest.raises(DivergedError, match=rf"ranks {hvd.size() - 1} \(.* first in bias"):
        hvd.guards.require_equal(model)


def test_a_gradient_that_is_no_number_is_named_before_it_is_summed() -> None:
    model = torch.nn.Linear(3, 2)
    end = hvd.guards.watch_gradients(model)
    loss = model(torch.tensor([[1.0, float("nan"), 1.0]])).sum()
    with pytest.raises(NotFiniteError, match=rf"rank {hvd.rank()} .*the gradient of weight"):
        loss.backward()
    end()
    model(torch.tensor([[1.0, float("nan"), 1.0]])).sum().backward()


def test_infinite_values_are_named() -> None:
    with pytest.raises(NotFiniteError, match=rf"rank {hvd.rank()} .*layer\[1\] has"):
        hvd.guards.require_finite({"layer": [torch.ones(2), torch.tensor(float("inf"))]})


def test_iterators_views_modules_and_sparse_gradients_are_looked_at() -> None:
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    sparse = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([float("inf")]), (3,))
    bad = ({"model": model}, model.parameters(), model.state_dict().values(), [sparse])
    for value in bad:
        with pytest.raises(NotFiniteError):
            hvd.guards.require_finite(value)
    hvd.guards.require_equal([torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1), (3,))])


def test_ranks_that_share_a_batch_unevenly_step_with_its_mean() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    with torch.no_grad():
        model.weight.fill_(0)
    # Five parts whose gradients are 1 to 5; some ranks have more of them than others.
    sampler = hvd.elastic.ConstantBatchSampler(range(1, 6), 1, 5, shuffle=False)
    for step in (1, 2):
        optimizer.share_batch(sampler.passes, sampler.parts)
        for (index,) in sampler:
            model(torch.tensor([[index + 1.0]])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert model.weight.item() == -3.0 * step


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients_are_divided_by_the_parts_of_a_shared_batch(as_dense: bool) -> None:
    model = torch.nn.Embedding(3, 1, sparse=True)
    torch.nn.init.zeros_(model.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        model.named_parameters(),
        sparse_as_dense=as_dense,
    )
    optimizer.share_batch(2, 2 * hvd.size())
    for _ in range(2):
        model(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert model.weight.flatten().tolist() == [0.0, -1.0, 0.0]


def test_only_averages_can_be_shared() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hvd.Sum)
    with pytest.raises(ValueError, match="op=Average"):
        optimizer.share_batch(1, 2)
