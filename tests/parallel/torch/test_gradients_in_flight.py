"""What may and may not be done to gradients between backward and step."""

from __future__ import annotations

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


class TestChangedInTime:
    def test_between_the_passes_of_one_step(self) -> None:
        net = model()
        optimizer = distributed(net, backward_passes_per_step=2)
        my_loss(net, 0).backward()
        for parameter in net.parameters():
            parameter.grad.mul_(0.5)
        my_loss(net, 1).backward()
        optimizer.step()
        expected = trained_alone(
            sgd, 1, lambda net, _: everybodys_loss(net, 0) / 2 + everybodys_loss(net, 1)
        )
        assert_same_parameters(net, expected)

    def test_by_a_hook_that_came_before_the_optimizer(self) -> None:
        def halve(parameter: torch.Tensor) -> None:
            parameter.grad.mul_(0.5)

        net = model()
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(halve)
        train(net, distributed(net), 3)
        expected = trained_alone(sgd, 3, lambda net, step: everybodys_loss(net, step) / 2)
        assert_same_parameters(net, expected)

    def test_into_gradients_that_are_kept_from_step_to_step(self) -> None:
        net = model()
        optimizer = distributed(net)
        for step in range(3):
            net.zero_grad(set_to_none=False)
            my_loss(net, step).backward()
            optimizer.step()
        assert_same_parameters(net, trained_alone(sgd, 3))


def replace_gradient(net: nn.Module) -> None:
    parameter = next(net.parameters())
    assert parameter.grad is not None
    parameter.grad = parameter.grad * 0.5


CHANGES = {
    "clipped by norm": lambda net: nn.utils.clip_grad_norm_(net.parameters(), 1e-3),
    "clipped by value": lambda net: nn.utils.clip_grad_value_(net.parameters(), 1e-3),
    "multiplied": lambda net: net[2].bias.grad.mul_(0.5),
    "replaced": replace_gradient,
    "set to none": lambda net: net.zero_grad(),
    "set to zero": lambda net: net.zero_grad(set_to_none=False),
}


@several
class TestChangedTooEarly:
    @pytest.mark.parametrize("change", CHANGES)
    def test_step_says_what_to_do(self, change: str) -> None:
        net = model()
        optimizer = distributed(net)
        my_loss(net).backward()
        CHANGES[change](net)
        with pytest.raises(RuntimeError, match=r"gradient of .*synchronize\(\).*skip_synchronize"):
            optimizer.step()
        assert_same_parameters(net, model())

    def test_the_gradient_is_named(self) -> None:
        net = model()
        optimizer = distributed(net)
        my_loss(net).backward()
        net[2].bias.grad.mul_(0.5)
        with pytest.raises(RuntimeError, match=r"the gradient of 2\.bias was changed"):
            optimizer.synchronize()

    @pytest.mark.parametrize(
        "options",
        [
            {"groups": 1},
            {"groups": 2},
            {"compression": hvd.Compression.fp16},
            {"backward_passes_per_step": 2},
        ],
        ids=str,
    )
    def test_whatever_the_options(self, options) -> None:
        net = model()
        optimizer = distributed(net, **options)
        for _ in range(options.get("backward_passes_per_step", 1)):
            my_loss(net).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        with pytest.raises(RuntimeError, match="skip_synchronize"):
            optimizer.step()

    def test_also_if_others_of_its_group_have_no_gradient_yet(self) -> None:
        net = model()
        unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        net.register_parameter("unused", unused)
        optimizer = distributed(net, groups=1)
        my_loss(nn.Sequential(*net)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        with pytest.raises(RuntimeError, match="skip_synchronize"):
            optimizer.step()

    def test_sparse_gradients_too(self) -> None:
        net = nn.Embedding(4, 2, sparse=True)
        optimizer = distributed(net)
        net(torch.tensor([hvd.rank() % 4])).sum().backward()
        net.weight.grad.mul_(0.5)
        with pytest.raises(RuntimeError, match="skip_synchronize"):
            optimizer.step()

    def test_training_goes_on_after_it(self) -> None:
        net = model()
        optimizer = distributed(net)
        my_loss(net).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        with pytest.raises(RuntimeError, match="skip_synchronize"):
            optimizer.step()
        train(net, optimizer, 3)
        assert_same_parameters(net, trained_alone(sgd, 3))


@several
class TestGradScaler:
    """What it does to gradients leaves no trace in their version counters."""

    @pytest.mark.parametrize("fused", [False, True])
    @pytest.mark.parametrize("unscaled", [False, True])
    def test_step_before_synchronize_is_refused(self, unscaled: bool, fused: bool) -> None:
        net = model(torch.float32)
        inner = torch.optim.Adam(net.parameters(), fused=fused)
        optimizer = hvd.DistributedOptimizer(inner, net.named_parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(my_loss(net)).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError, match=r"synchronize\(\).*skip_synchronize"):
            scaler.step(optimizer)
        assert_same_parameters(net, model(torch.float32))
        optimizer.synchronize()

    def test_an_optimizer_that_unscales_by_itself_goes_on_doing_so(self) -> None:
        def make(net: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.Adam(net.parameters(), fused=True)

        net = model(torch.float32)
        optimizer = hvd.DistributedOptimizer(make(net), net.named_parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(my_loss(net, step)).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
        assert optimizer._step_supports_amp_scaling
        assert_same_parameters(
            net, trained_alone(make, 3, net=model(torch.float32)), rtol=1e-4, atol=1e-6
        )


class FailsOnce(hvd.Compression.none):
    """A compression that fails for one tensor."""

    failed = False

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        if not cls.failed:
            cls.failed = True
            raise OSError("no space left for compression")
        return tensor, None


@several
class TestReductionThatCannotBeStarted:
    @pytest.mark.parametrize("groups", [None, 1, 3])
    def test_the_step_is_not_taken_with_what_was_not_reduced(self, groups: int | None) -> None:
        net = model()
        FailsOnce.failed = False
        optimizer = distributed(net, compression=FailsOnce, groups=groups)
        with pytest.raises(OSError, match="no space left"):
            my_loss(net).backward()
        with pytest.raises(RuntimeError, match=r"could not be started.*no space left"):
            optimizer.step()
        assert_same_parameters(net, model())
        optimizer.zero_grad()
        train(net, optimizer, 2)
        assert_same_parameters(net, trained_alone(sgd, 2))

    def test_a_failure_within_the_step_leaves_the_others_reduced(self) -> None:
        net = model()
        extra = nn.Linear(2, 2).double()
        FailsOnce.failed = True
        params = [*net.named_parameters(), *extra.named_parameters(prefix="extra")]
        inner = torch.optim.SGD([p for _, p in params], lr=0.1)
        optimizer = hvd.DistributedOptimizer(
            inner, params, compression=FailsOnce, groups=[list(extra.parameters())]
        )
        my_loss(net).backward()
        FailsOnce.failed = False
        with pytest.raises(OSError, match="no space left"):
            optimizer.synchronize()
        expected = model()
        everybodys_loss(expected).backward()
        for mine, theirs in zip(net.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
        optimizer.zero_grad()


@several
def test_passes_per_step_cannot_change_while_gradients_are_reduced() -> None:
    net = model()
    optimizer = distributed(net)
    my_loss(net).backward()
    with pytest.raises(RuntimeError, match=r"set_backward_passes_per_step.*between steps"):
        optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 1
    optimizer.step()
    assert_same_parameters(net, trained_alone(sgd, 1))


@several
class TestTwoOptimizers:
    """Both of them reduce in one backward pass, as those of an actor and a critic do."""

    def test_without_names_do_not_meet(self) -> None:
        nets, expected = [model(), model()], [model(), model()]
        optimizers = [hvd.DistributedOptimizer(sgd(net)) for net in nets]
        alone = [sgd(net) for net in expected]
        for step in range(2):
            for optimizer in optimizers + alone:
                optimizer.zero_grad()
            sum(my_loss(net, step + i) for i, net in enumerate(nets)).backward()
            sum(everybodys_loss(net, step + i) for i, net in enumerate(expected)).backward()
            for optimizer in optimizers + alone:
                optimizer.step()
        for net, theirs in zip(nets, expected, strict=True):
            assert_same_parameters(net, theirs)

    def test_with_groups_that_were_added_later_do_not_meet(self) -> None:
        nets = [model(), model()]
        optimizers = []
        for i, net in enumerate(nets):
            named = net[0].named_parameters(prefix=f"net{i}")
            inner = torch.optim.SGD(net[0].parameters(), lr=0.1)
            optimizers.append(hvd.DistributedOptimizer(inner, named))
            optimizers[i].add_param_group({"params": list(net[2].parameters())})
        sum(my_loss(net) for net in nets).backward()
        for optimizer, net in zip(optimizers, nets, strict=True):
            optimizer.step()
            assert_equal_on_all_ranks(net)

    def test_of_adasum_do_not_meet_others(self) -> None:
        nets = [model(), model()]
        optimizers = [
            hvd.DistributedOptimizer(sgd(net), op=op)
            for net, op in zip(nets, (hvd.Average, hvd.Adasum), strict=True)
        ]
        sum(my_loss(net) for net in nets).backward()
        optimizers[1].step()
        optimizers[0].step()
        for net in nets:
            assert_equal_on_all_ranks(net)
