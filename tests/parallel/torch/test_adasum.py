"""Adasum adds what is orthogonal and averages what is parallel."""

from __future__ import annotations

import warnings

import pytest
import torch

import sirtaki.torch as hvd
from tests.parallel.torch.models import (
    assert_equal_on_all_ranks,
    assert_same_parameters,
    everybodys_loss,
    model,
    my_loss,
    sgd,
    trained_alone,
)

several = pytest.mark.skipif("hvd.size() == 1", reason="one rank trains as without Adasum")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_equal_vectors_stay_what_they_are(dtype: torch.dtype) -> None:
    values = torch.arange(1.0, 8.0, dtype=dtype)
    torch.testing.assert_close(hvd.allreduce(values, op=hvd.Adasum), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_numbers_may_be_as_small_or_large_as_the_type_holds(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    for number in (limits.tiny * 0.75, limits.max * 0.75):
        values = torch.full((100,), number, dtype=dtype)
        assert torch.equal(hvd.allreduce(values, op=hvd.Adasum), values)


def test_orthogonal_vectors_are_added() -> None:
    values = torch.zeros(hvd.size())
    values[hvd.rank()] = hvd.rank() + 1.0
    expected = torch.arange(1.0, hvd.size() + 1)
    torch.testing.assert_close(hvd.allreduce(values, op=hvd.Adasum), expected)


def test_every_tensor_has_its_own_angle() -> None:
    """Reduced as one vector, the large tensor would decide for the small one."""
    equal = torch.full((4,), 100.0)
    orthogonal = torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = 1.0
    handles = [hvd.allreduce_async(t, op=hvd.Adasum) for t in (equal, orthogonal)]
    results = [hvd.synchronize(handle) for handle in handles]
    torch.testing.assert_close(results[0], equal)
    torch.testing.assert_close(results[1], torch.ones(hvd.size()))


class TestOptimizer:
    def optimizer(self, net: torch.nn.Module, **options) -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(sgd(net), net.named_parameters(), op=hvd.Adasum, **options)

    def test_ranks_with_the_same_data_train_as_one(self) -> None:
        net = model()
        optimizer = self.optimizer(net)
        assert isinstance(optimizer, torch.optim.SGD)
        for step in range(3):
            optimizer.zero_grad()
            everybodys_loss(net, step).backward()
            optimizer.step()
        assert_same_parameters(net, trained_alone(sgd, 3))

    def test_orthogonal_steps_are_all_taken(self) -> None:
        x = torch.nn.Parameter(torch.ones(hvd.size(), dtype=torch.float64))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([x], lr=0.25), op=hvd.Adasum)
        x[hvd.rank()].backward()
        optimizer.step()
        torch.testing.assert_close(x.detach(), torch.full_like(x, 0.75))

    def test_models_are_equal_on_all_ranks(self) -> None:
        net = model(torch.float32)
        optimizer = self.optimizer(net, compression=hvd.Compression.fp16)
        for step in range(3):
            optimizer.zero_grad()
            my_loss(net, step).backward()
            optimizer.step()
        assert_equal_on_all_ranks(net)

    def test_a_closure_gives_the_loss(self) -> None:
        net = model()
        optimizer = self.optimizer(net)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = everybodys_loss(net)
            loss.backward()
            return loss

        before = everybodys_loss(net).item()
        assert optimizer.step(closure).item() == before
        assert_same_parameters(net, trained_alone(sgd, 1))

    @several
    def test_there_is_nothing_to_synchronize_and_no_step_without_the_others(self) -> None:
        optimizer = self.optimizer(model())
        optimizer.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
        with pytest.raises(AssertionError, match="Adasum"), optimizer.skip_synchronize():
            pass

    @pytest.mark.parametrize("groups", [0, 1, 3])
    def test_groups_change_nothing_but_what_is_sent_together(self, groups: int) -> None:
        nets = [model(), model()]
        for net, how in zip(nets, (groups, None), strict=True):
            optimizer = self.optimizer(net, groups=how)
            my_loss(net).backward()
            optimizer.step()
        assert_same_parameters(*nets)

    @several
    def test_parameters_of_a_group_are_sent_together(self) -> None:
        net = torch.nn.Linear(2 + hvd.rank(), 2)
        optimizer = self.optimizer(net, groups=[[net.bias, net.weight]])
        net(torch.ones(1, 2 + hvd.rank())).sum().backward()
        with pytest.raises(hvd.MismatchError, match="bias, weight"):
            optimizer.step()

    @several
    def test_it_is_not_wrapped_twice(self) -> None:
        with pytest.raises(ValueError, match="already"):
            hvd.DistributedOptimizer(self.optimizer(model()))

    @several
    def test_groups_are_numbers_or_lists(self) -> None:
        with pytest.raises(ValueError, match="groups"):
            self.optimizer(model(), groups="all")

    def test_parameters_added_later_are_combined_too(self) -> None:
        net = model()
        inner = torch.optim.SGD(net[0].parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, op=hvd.Adasum)
        optimizer.add_param_group({"params": list(net[2].parameters())})
        my_loss(net).backward()
        optimizer.step()
        assert_equal_on_all_ranks(net)

    def test_outside_the_process_set_it_is_an_ordinary_one(self, pair: hvd.ProcessSet) -> None:
        net = model()
        optimizer = self.optimizer(net, process_set=pair)
        my_loss(net).backward()
        if pair.included():
            optimizer.step()
            return
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_parameters(net, trained_alone(sgd, 1, my_loss))
