"""One process, no launcher: everything works and costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd


@pytest.fixture
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def no_world() -> None:
    hvd.shutdown()


@pytest.mark.usefixtures("world")
def test_the_world_is_one_rank() -> None:
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.mpi_ops.is_homogeneous()


@pytest.mark.usefixtures("world")
def test_results_are_copies_and_not_the_inputs() -> None:
    x = torch.arange(4.0)
    for result in (
        hvd.allreduce(x),
        hvd.allgather(x),
        hvd.broadcast(x, 0),
        hvd.alltoall(x),
        hvd.reducescatter(x),
    ):
        assert torch.equal(result, x)
        result.zero_()
        assert x.sum() == 6


@pytest.mark.usefixtures("no_world")
class TestWithoutInit:
    def test_operations_fail(self) -> None:
        for operation in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.reducescatter):
            with pytest.raises(hvd.HorovodInternalError, match="init"):
                operation(torch.ones(2))
        with pytest.raises(hvd.HorovodInternalError, match="init"):
            hvd.barrier()
        with pytest.raises(hvd.HorovodInternalError, match="init"):
            hvd.join()

    def test_there_is_no_rank(self) -> None:
        with pytest.raises(ValueError, match="init"):
            hvd.rank()

    def test_an_optimizer_says_what_is_missing(self) -> None:
        with pytest.raises(ValueError, match="init"):
            hvd.DistributedOptimizer(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))


def test_it_can_be_shut_down_and_initialised_again() -> None:
    for i in range(20):
        hvd.init()
        assert hvd.allreduce(torch.tensor(float(i)), name="x").item() == i
        hvd.shutdown()
    assert not hvd.is_initialized()


def test_a_handle_from_before_shutdown_is_never_taken_for_a_new_one() -> None:
    hvd.init()
    old = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)])
    hvd.shutdown()
    hvd.init()
    new = hvd.allreduce_async(torch.ones(4))
    assert new != old
    assert torch.equal(hvd.synchronize(new), torch.ones(4))
    hvd.shutdown()


@pytest.mark.usefixtures("world")
class TestOptimizer:
    def test_nothing_is_hooked(self) -> None:
        net = nn.Linear(2, 2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
        assert all(not p._post_accumulate_grad_hooks for p in net.parameters())
        for _ in range(2):  # and so backward may run as often as one likes
            net(torch.ones(1, 2)).sum().backward()
        optimizer.zero_grad()
        optimizer.step()

    def test_parameters_without_a_gradient_keep_none(self) -> None:
        used, unused = nn.Linear(2, 2), nn.Linear(2, 2)
        params = [*used.parameters(), *unused.parameters()]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1))
        used(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert unused.weight.grad is None

    def test_an_elastic_job_may_grow_so_gradients_are_hooked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOROVOD_ELASTIC", "1")
        hvd.shutdown()
        hvd.init()
        net = nn.Linear(2, 2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
        assert all(p._post_accumulate_grad_hooks for p in net.parameters())
        before = net.bias.detach().clone()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        torch.testing.assert_close(net.bias.detach(), before - 0.1)

    def test_options_and_state_are_shared_with_the_wrapped_optimizer(self) -> None:
        inner = torch.optim.Adam(nn.Linear(2, 2).parameters(), lr=0.5)
        optimizer = hvd.DistributedOptimizer(inner)
        assert type(optimizer).__name__ == "Adam"
        assert isinstance(optimizer, torch.optim.Adam)
        assert optimizer.state is inner.state
        inner.param_groups[0]["lr"] = 0.25
        assert optimizer.param_groups[0]["lr"] == 0.25

    def test_optimizers_that_users_define_can_be_wrapped(self) -> None:
        class Signs(torch.optim.Optimizer):
            """Has an argument without a default, so it cannot be made again from its groups."""

            def __init__(self, model: nn.Module, size: float) -> None:
                super().__init__(model.parameters(), {"size": size})

            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data.sub_(p.grad.sign(), alpha=group["size"])

        net = nn.Linear(2, 2)
        optimizer = hvd.DistributedOptimizer(Signs(net, 0.5), net.named_parameters())
        before = net.bias.detach().clone()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        torch.testing.assert_close(net.bias.detach(), before - 0.5)


@pytest.mark.usefixtures("world")
class TestOptimizerArguments:
    def net(self) -> nn.Module:
        return nn.Linear(2, 2)

    def wrap(self, net: nn.Module, **options) -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), **options)

    def test_only_optimizers_can_be_wrapped(self) -> None:
        with pytest.raises(TypeError, match="Linear"):
            hvd.DistributedOptimizer(self.net())

    def test_an_optimizer_is_wrapped_once(self) -> None:
        with pytest.raises(ValueError, match="already"):
            hvd.DistributedOptimizer(self.wrap(self.net()))

    def test_names_must_be_pairs(self) -> None:
        net = self.net()
        with pytest.raises(ValueError, match="pairs"):
            self.wrap(net, named_parameters=net.parameters())

    def test_names_must_differ(self) -> None:
        net = self.net()
        with pytest.raises(ValueError, match=r"unique.*same"):
            self.wrap(net, named_parameters=[("same", net.weight), ("same", net.bias)])

    def test_all_parameters_must_have_names_if_some_have(self) -> None:
        net = self.net()
        with pytest.raises(ValueError, match="parameter 1 of group 0"):
            self.wrap(net, named_parameters=[("weight", net.weight)])

    def test_no_names_at_all_are_fine(self) -> None:
        self.wrap(self.net(), named_parameters=None)

    @pytest.mark.parametrize("passes", [0, -1])
    def test_passes_per_step_must_be_positive(self, passes: int) -> None:
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            self.wrap(self.net(), backward_passes_per_step=passes)
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            self.wrap(self.net()).set_backward_passes_per_step(passes)

    def test_predivision_needs_an_average(self) -> None:
        with pytest.raises(ValueError, match="Average"):
            self.wrap(self.net(), gradient_predivide_factor=2.0, op=hvd.Sum)

    @pytest.mark.parametrize("groups", [-1, "all", [torch.ones(2)], [["weight"]], 1.5])
    def test_groups_are_a_number_or_lists_of_tensors(self, groups: object) -> None:
        with pytest.raises(ValueError, match="groups"):
            self.wrap(self.net(), groups=groups)

    def test_a_parameter_is_in_one_group_only(self) -> None:
        net = self.net()
        with pytest.raises(ValueError, match="one group"):
            self.wrap(net, groups=[[net.weight], [net.weight, net.bias]])
