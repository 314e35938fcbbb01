"""Training with DistributedOptimizer is training with the average of the ranks' gradients."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from tests.parallel.torch.models import (
    assert_equal_on_all_ranks,
    assert_same_parameters,
    data_of,
    distributed,
    everybodys_loss,
    loss_of,
    model,
    my_loss,
    sgd,
    train,
    trained_alone,
)

several = pytest.mark.skipif("hvd.size() == 1", reason="nothing is reduced on one rank")


OPTIMIZERS = {
    "ASGD": {"lr": 0.1},
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {"lr": 0.1},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.9},
    "Rprop": {},
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
}


def test_names_that_were_used_up_are_missed() -> None:
    net = model()
    used_up = net.named_parameters()
    list(used_up)
    with pytest.raises(ValueError, match="names are missing"):
        hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), used_up)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_the_steps_it_takes_alone(name: str) -> None:
    if not hasattr(torch.optim, name):
        pytest.skip(f"this version of torch has no {name}")

    def make(net: nn.Module) -> torch.optim.Optimizer:
        return getattr(torch.optim, name)(net.parameters(), **OPTIMIZERS[name])

    net = model()
    optimizer = hvd.DistributedOptimizer(make(net), net.named_parameters())
    assert isinstance(optimizer, getattr(torch.optim, name))
    train(net, optimizer, 4)
    assert_same_parameters(net, trained_alone(make, 4))
    assert_equal_on_all_ranks(net)


def test_muon_takes_the_steps_it_takes_alone() -> None:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this version of torch has no Muon")

    def make(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Muon([p for p in net.parameters() if p.dim() == 2], lr=0.01)

    net = model()
    train(net, hvd.DistributedOptimizer(make(net)), 3)
    assert_same_parameters(net, trained_alone(make, 3), rtol=0.05, atol=1e-3)  # works in bfloat16
    assert_equal_on_all_ranks(net)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_searches_with_everybodys_loss(line_search: str | None) -> None:
    def make(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn=line_search)

    net, expected = model(), model()
    optimizer, alone = hvd.DistributedOptimizer(make(net)), make(expected)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = my_loss(net)
        loss.backward()
        return loss

    def closure_alone() -> torch.Tensor:
        alone.zero_grad()
        loss = everybodys_loss(expected)
        loss.backward()
        return loss

    for _ in range(3):
        loss = optimizer.step(closure)
        torch.testing.assert_close(loss, alone.step(closure_alone), check_dtype=False)
    assert_same_parameters(net, expected, rtol=1e-5, atol=1e-7)
    assert_equal_on_all_ranks(net)


def test_training_is_the_same_bits_every_time() -> None:
    nets = []
    for _ in range(2):
        net = model(torch.float32)
        train(net, distributed(net), 5)
        nets.append(net)
    assert all(torch.equal(a, b) for a, b in zip(*(n.parameters() for n in nets), strict=True))
    assert_equal_on_all_ranks(nets[0])


def test_gradients_are_averages_after_synchronize() -> None:
    net, expected = model(), model()
    optimizer = distributed(net)
    my_loss(net).backward()
    optimizer.synchronize()
    everybodys_loss(expected).backward()
    for mine, theirs in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_op_sum_adds_gradients() -> None:
    net = model()
    train(net, distributed(net, op=hvd.Sum), 3)
    expected = trained_alone(sgd, 3, lambda net, step: everybodys_loss(net, step) * hvd.size())
    assert_same_parameters(net, expected)


def test_parameters_need_no_names() -> None:
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net))
    train(net, optimizer, 3)
    assert_same_parameters(net, trained_alone(sgd, 3))
    names = list(optimizer._parameter_names.values())
    assert len(set(names)) == len(names)
    assert all(theirs == names for theirs in hvd.allgather_object(names))


@pytest.mark.parametrize("factor", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("groups", [None, 1])
def test_predivision_changes_only_when_it_is_divided(factor: float, groups: int | None) -> None:
    net = model()
    train(net, distributed(net, gradient_predivide_factor=factor, groups=groups), 3)
    assert_same_parameters(net, trained_alone(sgd, 3))


@pytest.mark.parametrize(
    ("compression", "digits"),
    [(hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)],
    ids=["fp16", "bf16"],
)
@pytest.mark.parametrize("groups", [None, 2])
def test_compressed_gradients_are_about_the_same(compression, digits, groups) -> None:
    net = model()
    train(net, distributed(net, compression=compression, groups=groups), 3)
    assert_same_parameters(net, trained_alone(sgd, 3), rtol=digits, atol=digits)
    assert_equal_on_all_ranks(net)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_models_of_other_types_are_equal_on_all_ranks(dtype: torch.dtype) -> None:
    net = model(dtype)
    train(net, distributed(net), 3)
    assert_equal_on_all_ranks(net)


class TestPassesPerStep:
    def test_gradients_of_the_passes_are_added_up(self) -> None:
        net = model()
        optimizer = distributed(net, backward_passes_per_step=3)
        for step in range(2):
            optimizer.zero_grad()
            for i in range(3):
                my_loss(net, 3 * step + i).backward()
            optimizer.step()
        expected = trained_alone(
            sgd, 2, lambda net, step: sum(everybodys_loss(net, 3 * step + i) for i in range(3))
        )
        assert_same_parameters(net, expected)

    def test_step_may_come_before_the_last_pass(self) -> None:
        net = model()
        optimizer = distributed(net, backward_passes_per_step=3)
        train(net, optimizer, 2)
        assert_same_parameters(net, trained_alone(sgd, 2))

    def test_their_number_can_be_changed_between_steps(self) -> None:
        net = model()
        optimizer = distributed(net)
        optimizer.set_backward_passes_per_step(2)
        assert optimizer.backward_passes_per_step == 2
        my_loss(net, 0).backward()
        my_loss(net, 1).backward()
        optimizer.step()
        expected = trained_alone(
            sgd, 1, lambda net, _: everybodys_loss(net, 0) + everybodys_loss(net, 1)
        )
        assert_same_parameters(net, expected)

    @several
    def test_one_pass_more_is_an_error(self) -> None:
        net = model()
        optimizer = distributed(net, backward_passes_per_step=2)
        my_loss(net).backward()
        my_loss(net).backward()
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            my_loss(net).backward()
        with pytest.raises(RuntimeError, match="changed between backward"):
            optimizer.synchronize()


class TestSynchronize:
    def test_gradients_can_be_clipped_before_the_step(self) -> None:
        net = model()
        optimizer = distributed(net)
        for step in range(3):
            optimizer.zero_grad()
            my_loss(net, step).backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with optimizer.skip_synchronize():
                    optimizer.step()

        expected = model()
        alone = sgd(expected)
        for step in range(3):
            alone.zero_grad()
            everybodys_loss(expected, step).backward()
            nn.utils.clip_grad_norm_(expected.parameters(), 0.01)
            alone.step()
        assert_same_parameters(net, expected)

    def test_step_without_skipping_warns_and_takes_the_gradients_as_they_are(self) -> None:
        net = model()
        optimizer = distributed(net, op=hvd.Sum)
        my_loss(net).backward()
        optimizer.synchronize()
        with pytest.warns(UserWarning, match="without optimizer.skip_synchronize"):
            optimizer.step()
        expected = trained_alone(sgd, 1, lambda net, step: everybodys_loss(net, step) * hvd.size())
        assert_same_parameters(net, expected)

    @pytest.mark.parametrize("passes", [1, 2])
    def test_gradients_that_are_being_reduced_are_discarded_by_zero_grad(self, passes: int) -> None:
        net, generator = model(), nn.Linear(4, 4).double()
        optimizer = distributed(net, backward_passes_per_step=passes)
        for step in range(3):
            # As the discriminator of a GAN, which has gradients of the generator's step.
            loss_of(net, (generator(data_of(hvd.rank())[0]), data_of(0)[1])).backward()
            optimizer.zero_grad()
            assert all(p.grad is None for p in net.parameters())
            for _ in range(passes):
                (my_loss(net, step) / passes).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert_same_parameters(net, trained_alone(sgd, 3))

    def test_an_optimizer_whose_zero_grad_takes_nothing(self) -> None:
        class Plain(torch.optim.SGD):
            def zero_grad(self) -> None:
                super().zero_grad()

        net = model()
        optimizer = hvd.DistributedOptimizer(Plain(net.parameters(), lr=0.1))
        my_loss(net).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert all(p.grad is None for p in net.parameters())

    def test_gradients_can_be_set_to_zero_rather_than_none(self) -> None:
        net = model()
        optimizer = distributed(net)
        for step in range(3):
            optimizer.zero_grad(set_to_none=False)
            my_loss(net, step).backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        assert all(p.grad is not None and not p.grad.any() for p in net.parameters())
        assert_same_parameters(net, trained_alone(sgd, 3))


class TestUnusedParameters:
    class TwoPaths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.even, self.odd = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
            return self.odd(x) if rank % 2 else self.even(x)

    def loss(self, net: nn.Module, rank: int) -> torch.Tensor:
        inputs, targets = data_of(rank)
        return nn.functional.mse_loss(net(inputs, rank), targets)

    def net(self) -> nn.Module:
        torch.manual_seed(5)
        return self.TwoPaths().double()

    @pytest.mark.parametrize("groups", [None, 1, 2])
    def test_parameters_that_no_rank_uses_may_be_left_alone(self, groups: int | None) -> None:
        net = self.net()
        net.spare = nn.Linear(2, 2).double()
        before = copy.deepcopy(net.spare)
        decaying = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.5)
        optimizer = hvd.DistributedOptimizer(decaying, groups=groups, skip_unused=True)
        for step in range(3):
            optimizer.zero_grad()
            # The odd path on rank 0 alone, and in the last step on none.
            self.loss(net, int(hvd.rank() == 0 and step < 2)).backward()
            optimizer.step()
            assert all(p.grad is None for p in net.spare.parameters())
            assert (net.odd.weight.grad is None) == (step == 2)
            assert (net.even.weight.grad is None) == (hvd.size() == 1 and step < 2)
        assert_same_parameters(net.spare, before)
        assert_equal_on_all_ranks(net)

    def test_steps_of_adasum_have_no_unused_parameters(self) -> None:
        with pytest.raises(ValueError, match="cannot be used with skip_unused"):
            distributed(model(), op=hvd.Adasum, skip_unused=True)

    @pytest.mark.parametrize("groups", [None, 1, 2])
    def test_ranks_may_use_different_parameters(self, groups: int | None) -> None:
        net = self.net()
        optimizer = distributed(net, groups=groups)
        self.loss(net, hvd.rank()).backward()
        optimizer.step()
        expected = self.net()
        alone = sgd(expected)
        losses = [self.loss(expected, rank) for rank in range(hvd.size())]
        torch.stack(losses).mean().backward()
        alone.step()
        assert_same_parameters(net, expected)
        assert_equal_on_all_ranks(net)

    @several
    def test_what_nobody_uses_gets_a_gradient_of_zeros(self) -> None:
        net = model()
        net.extra = nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = distributed(net)
        my_loss_without_extra = loss_of(nn.Sequential(*list(net)), data_of(hvd.rank()))
        my_loss_without_extra.backward()
        optimizer.synchronize()
        assert net.extra.grad is not None
        assert not net.extra.grad.any()


class TestGroups:
    @pytest.mark.parametrize("groups", [1, 2, 3, 100])
    def test_a_number_of_groups(self, groups: int) -> None:
        net = model()
        train(net, distributed(net, groups=groups), 3)
        assert_same_parameters(net, trained_alone(sgd, 3))

    def test_lists_of_parameters_and_the_others_one_by_one(self) -> None:
        net = model()
        train(net, distributed(net, groups=[[net[0].weight, net[2].bias]]), 3)
        assert_same_parameters(net, trained_alone(sgd, 3))

    def test_the_deprecated_name(self) -> None:
        net = model()
        with pytest.warns(DeprecationWarning, match="groups"):
            optimizer = distributed(net, num_groups=2)
        train(net, optimizer, 2)
        assert_same_parameters(net, trained_alone(sgd, 2))

    def test_a_group_of_parameters_of_several_types(self) -> None:
        def build() -> nn.Module:
            net = model()
            net[0].to(torch.float32)
            return net

        def loss(net: nn.Module, rank: int) -> torch.Tensor:
            inputs, targets = data_of(rank)
            return nn.functional.mse_loss(net[2](net[0](inputs.float()).double()), targets)

        net, expected = build(), build()
        optimizer, alone = distributed(net, groups=1), sgd(expected)
        loss(net, hvd.rank()).backward()
        optimizer.step()
        torch.stack([loss(expected, rank) for rank in range(hvd.size())]).mean().backward()
        alone.step()
        assert_same_parameters(net, expected)


def test_only_the_ranks_of_a_process_set_exchange_gradients(pair: hvd.ProcessSet) -> None:
    net = model()
    train(net, distributed(net, process_set=pair), 3)
    ranks = pair.ranks if pair.included() else [hvd.rank()]
    expected = trained_alone(sgd, 3, lambda net, step: everybodys_loss(net, step, ranks))
    assert_same_parameters(net, expected)
