"""DistributedOptimizer with closures, schedulers, scalers, compiled and changing models."""

from __future__ import annotations

import copy
import gc
import warnings

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from tests.parallel.torch.models import (
    assert_equal_on_all_ranks,
    assert_same_parameters,
    distributed,
    everybodys_loss,
    model,
    my_loss,
    sgd,
    train,
    trained_alone,
)

several = pytest.mark.skipif("hvd.size() == 1", reason="nothing is reduced on one rank")


class TestClosures:
    def test_gradients_of_the_closure_are_reduced(self) -> None:
        net = model()
        optimizer = distributed(net)
        for step in range(3):

            def closure(step: int = step) -> torch.Tensor:
                optimizer.zero_grad()
                loss = my_loss(net, step)
                loss.backward()
                return loss

            before = my_loss(net, step).item()
            assert optimizer.step(closure).item() == before
        assert_same_parameters(net, trained_alone(sgd, 3))

    def test_the_closure_may_synchronize_to_clip(self) -> None:
        net = model()
        optimizer = distributed(net, op=hvd.Sum)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = my_loss(net)
            loss.backward()
            optimizer.synchronize()
            nn.utils.clip_grad_value_(net.parameters(), 0.001)
            return loss

        optimizer.step(closure)
        for parameter in net.parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().max() <= 0.001


class TestTogetherWithTorch:
    @pytest.mark.parametrize("wrapped_first", [True, False])
    def test_learning_rate_schedules(self, wrapped_first: bool) -> None:
        net = model()
        optimizer = sgd(net)
        if wrapped_first:
            optimizer = hvd.DistributedOptimizer(optimizer)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        else:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            optimizer = hvd.DistributedOptimizer(optimizer)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(3):
                train(net, optimizer, 1, step)
                scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**3

        expected = model()
        alone = sgd(expected)
        alone_scheduler = torch.optim.lr_scheduler.StepLR(alone, 1, gamma=0.5)
        for step in range(3):
            alone.zero_grad()
            everybodys_loss(expected, step).backward()
            alone.step()
            alone_scheduler.step()
        assert_same_parameters(net, expected)

    def test_gradient_scaling(self) -> None:
        net = model(torch.float32)
        optimizer = distributed(net)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(my_loss(net, step)).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
        expected = trained_alone(sgd, 3, net=model(torch.float32))
        assert_same_parameters(net, expected, rtol=1e-5, atol=1e-6)

    def test_all_ranks_skip_a_step_that_overflows_on_one(self) -> None:
        net = model(torch.float32)
        before = copy.deepcopy(net)
        optimizer = distributed(net)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        loss = my_loss(net) * (float("inf") if hvd.rank() == 0 else 1.0)
        scaler.scale(loss).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 512.0
        assert_same_parameters(net, before)

    def test_hooks_around_the_step_run_once(self) -> None:
        net = model()
        optimizer = distributed(net)
        calls = []
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        optimizer.load_state_dict(optimizer.state_dict())
        train(net, optimizer, 1)
        assert calls == ["before", "after"]

    def test_convolutions_in_channels_last_format(self) -> None:
        def build() -> nn.Module:
            torch.manual_seed(2)
            return nn.Conv2d(3, 4, 3).double().to(memory_format=torch.channels_last)

        def loss(net: nn.Module, rank: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(rank)
            x = torch.randn(2, 3, 5, 5, generator=generator, dtype=torch.float64)
            return (net(x.to(memory_format=torch.channels_last)) ** 2).mean()

        net, expected = build(), build()
        optimizer, alone = distributed(net), sgd(expected)
        loss(net, hvd.rank()).backward()
        optimizer.step()
        torch.stack([loss(expected, rank) for rank in range(hvd.size())]).mean().backward()
        alone.step()
        assert_same_parameters(net, expected)

    def test_tied_weights_are_reduced_once(self) -> None:
        def build() -> nn.Module:
            torch.manual_seed(4)
            net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3))
            net[2].weight = net[0].weight
            return net.double()

        net = build()
        train(net, distributed(net), 3)
        assert_same_parameters(net, trained_alone(sgd, 3, net=build()))

    def test_a_compiled_model(self) -> None:
        net = model()
        optimizer = distributed(net)
        compiled = torch.compile(net, backend="aot_eager")
        for step in range(3):
            optimizer.zero_grad()
            my_loss(compiled, step).backward()
            optimizer.step()
        assert_same_parameters(net, trained_alone(sgd, 3))


class TestChangesAfterWrapping:
    def test_training_resumes_from_a_state_dict(self) -> None:
        net = model()
        optimizer = distributed(net)
        train(net, optimizer, 2)
        saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))

        resumed = model()
        optimizer = distributed(resumed)
        resumed.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        train(resumed, optimizer, 2, first=2)
        assert_same_parameters(resumed, trained_alone(sgd, 4))

    def test_state_from_before_is_kept(self) -> None:
        net = model()
        optimizer = sgd(net)
        everybodys_loss(net, 0).backward()
        optimizer.step()
        train(net, hvd.DistributedOptimizer(optimizer), 2, first=1)
        assert_same_parameters(net, trained_alone(sgd, 3))

    def test_frozen_parameters_stay_and_can_be_unfrozen(self) -> None:
        net = model()
        net[0].requires_grad_(False)
        optimizer = distributed(net)
        train(net, optimizer, 2)
        assert_same_parameters(net[0], model()[0])
        net[0].requires_grad_(True)
        train(net, optimizer, 2, first=2)
        assert_equal_on_all_ranks(net)

        expected = model()
        expected[0].requires_grad_(False)
        alone = sgd(expected)
        for step in range(4):
            if step == 2:
                expected[0].requires_grad_(True)
            alone.zero_grad()
            everybodys_loss(expected, step).backward()
            alone.step()
        assert_same_parameters(net, expected)

    def test_parameters_frozen_later_are_left_out(self) -> None:
        net = model()
        optimizer = distributed(net)
        train(net, optimizer, 1)
        net[0].requires_grad_(False)
        optimizer.zero_grad()
        my_loss(net, 1).backward()
        optimizer.step()
        assert net[0].weight.grad is None
        assert_equal_on_all_ranks(net)

    def test_groups_added_later_are_reduced_too(self) -> None:
        net = model()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net[0].parameters(), lr=0.1), net[0].named_parameters()
        )
        optimizer.add_param_group({"params": list(net[2].parameters())})
        train(net, optimizer, 3)

        def make(net: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.SGD(net.parameters(), lr=0.1)

        assert_same_parameters(net, trained_alone(make, 3))

    def test_a_new_optimizer_takes_the_place_of_one_that_is_gone(self) -> None:
        net = model()
        for step in range(3):
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
            )
            train(net, optimizer, 1, step)
            del optimizer
            gc.collect()

        def make(net: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.SGD(net.parameters(), lr=0.1)

        assert_same_parameters(net, trained_alone(make, 3))


@several
def test_models_that_differ_are_an_error_that_training_survives() -> None:
    net = nn.Linear(2 + hvd.rank(), 2)
    optimizer = distributed(net)
    net(torch.ones(1, 2 + hvd.rank())).sum().backward()
    with pytest.raises(hvd.HorovodInternalError, match="weight"):
        optimizer.step()
    optimizer.zero_grad()
    good = model()
    train(good, distributed(good), 2)
    assert_same_parameters(good, trained_alone(sgd, 2))
