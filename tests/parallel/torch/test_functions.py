"""Parameters, optimizer state and objects travel from rank to rank."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from tests import needs
from tests.parallel.torch.models import my_loss

several = pytest.mark.skipif("hvd.size() == 1", reason="one rank has nothing to receive")


def last() -> int:
    return hvd.size() - 1


class TestBroadcastParameters:
    def net(self) -> nn.Module:
        torch.manual_seed(hvd.rank())
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        net[1].running_mean.fill_(hvd.rank())
        net[1].num_batches_tracked.fill_(hvd.rank() + 10)
        return net

    def expected(self, root: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(root)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        net[1].running_mean.fill_(root)
        net[1].num_batches_tracked.fill_(root + 10)
        return net.state_dict()

    @pytest.mark.parametrize(
        "params",
        [
            lambda net: net.state_dict(),
            lambda net: list(net.state_dict().items()),
            lambda net: iter(net.state_dict().items()),
            lambda net: list(net.state_dict().values()),
            lambda net: iter(net.state_dict().values()),
        ],
        ids=["mapping", "pairs", "iterator of pairs", "tensors", "iterator of tensors"],
    )
    def test_everybody_has_the_parameters_of_the_root(self, params) -> None:
        net = self.net()
        hvd.broadcast_parameters(params(net), root_rank=last())
        for name, expected in self.expected(last()).items():
            assert torch.equal(net.state_dict()[name], expected), name

    def test_the_generator_of_named_parameters_will_do(self) -> None:
        net = self.net()
        hvd.broadcast_parameters(net.named_parameters(), root_rank=0)
        expected = self.expected(0)
        for name, parameter in net.named_parameters():
            assert parameter.requires_grad
            assert torch.equal(parameter, expected[name]), name

    @pytest.mark.parametrize(
        "params",
        [None, 3, "weights", torch.ones(2), nn.Linear(2, 2), [1.0, 2.0], {"lr": 0.1}, [("a", 1)]],
        ids=["None", "number", "text", "tensor", "module", "numbers", "mapping", "pairs"],
    )
    def test_anything_else_is_told_at_the_call(self, params) -> None:
        with pytest.raises(ValueError, match=r"param"):
            hvd.broadcast_parameters(params, root_rank=0)


class TestObjects:
    def test_broadcast_gives_the_roots_object(self) -> None:
        for root in range(hvd.size()):
            mine = {"rank": hvd.rank(), "words": ["a"] * hvd.rank()}
            assert hvd.broadcast_object(mine, root) == {"rank": root, "words": ["a"] * root}

    def test_other_ranks_need_no_object(self) -> None:
        mine = ("answer", 42) if hvd.rank() == 0 else None
        assert hvd.broadcast_object(mine, root_rank=0, name="answer") == ("answer", 42)

    def test_large_objects_too(self) -> None:
        mine = torch.arange(300_000) + hvd.rank()
        assert torch.equal(hvd.broadcast_object(mine, last()), torch.arange(300_000) + last())

    def test_allgather_gives_the_objects_in_order_of_rank(self) -> None:
        objects = hvd.allgather_object({"rank": hvd.rank(), "pad": "x" * 10 ** hvd.rank()})
        assert [obj["rank"] for obj in objects] == list(range(hvd.size()))
        assert [len(obj["pad"]) for obj in objects] == [10**rank for rank in range(hvd.size())]

    def test_functions_without_a_name_travel_where_cloudpickle_is_installed(self) -> None:
        needs.package("cloudpickle")
        rank = hvd.rank()
        functions = hvd.allgather_object(lambda x: x + rank)
        assert [function(1) for function in functions] == [1 + r for r in range(hvd.size())]


def plain(value):
    """State as something that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


OPTIMIZERS = {
    "ASGD": {},
    "Adadelta": {},
    "Adagrad": {},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "weight_decay": 0.1, "lr": 0.1},
}


class TestBroadcastOptimizerState:
    def net(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    @pytest.mark.parametrize("name", OPTIMIZERS)
    @pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "distributed"])
    def test_everybody_continues_with_the_roots_state(self, name: str, wrapped: bool) -> None:
        """Only the root has trained; its optimizer has state and changed options."""
        net = self.net()
        optimizer = getattr(torch.optim, name)(net.parameters(), **OPTIMIZERS[name])
        if hvd.rank() == 0:
            for step in range(2):
                optimizer.zero_grad()
                my_loss(net, step).backward()
                optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.0625
        if wrapped:
            optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        before = copy.deepcopy(net.state_dict())
        expected = hvd.broadcast_object(plain(optimizer.state_dict()), 0)

        hvd.broadcast_optimizer_state(optimizer, root_rank=0)

        assert plain(optimizer.state_dict()) == expected
        assert optimizer.param_groups[0]["lr"] == 0.0625
        assert plain(net.state_dict()) == plain(before)

    @several
    def test_state_that_only_others_have_is_dropped(self) -> None:
        net = self.net()
        optimizer = torch.optim.Adam(net.parameters())
        if hvd.rank() != 0:
            my_loss(net).backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert not optimizer.state

    def test_options_of_optimizers_without_state_are_sent(self) -> None:
        net = self.net()
        optimizer = torch.optim.SGD(
            [
                {"params": net[0].parameters(), "lr": 0.1 * (hvd.rank() + 1)},
                {"params": net[2].parameters(), "nesterov": False},
            ],
            lr=0.5 / (hvd.rank() + 1),
        )
        hvd.broadcast_optimizer_state(optimizer, root_rank=last())
        assert optimizer.param_groups[0]["lr"] == 0.1 * hvd.size()
        assert optimizer.param_groups[1]["lr"] == 0.5 / hvd.size()
        assert optimizer.param_groups[1]["nesterov"] is False

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_parameters_do_not_change_before_the_first_step(self, name: str) -> None:
        net = self.net()
        before = copy.deepcopy(net.state_dict())
        optimizer = getattr(torch.optim, name)(net.parameters(), **OPTIMIZERS[name])
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert plain(net.state_dict()) == plain(before)

    def test_where_there_is_no_state_yet_gradients_become_zeros(self) -> None:
        net = self.net()
        hvd.broadcast_optimizer_state(torch.optim.Adam(net.parameters()), root_rank=0)
        assert all(p.grad is not None and not p.grad.any() for p in net.parameters())

    def test_a_tensor_among_the_options_is_sent(self) -> None:
        net = self.net()
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.5 + hvd.rank()))
        hvd.broadcast_optimizer_state(optimizer, root_rank=last())
        assert optimizer.param_groups[0]["lr"].item() == 0.5 + last()

    def test_sparse_layers_get_sparse_gradients(self) -> None:
        layer = nn.Embedding(5, 2, sparse=True)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=layer)
        assert layer.weight.grad is not None
        assert layer.weight.grad.is_sparse
        layer(torch.tensor([1])).sum().backward()
        optimizer.step()

    def test_frozen_parameters_get_no_gradient(self) -> None:
        net = self.net()
        net[0].requires_grad_(False)
        optimizer = torch.optim.Adam(net.parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert net[0].weight.grad is None

    def test_lbfgs_is_refused(self) -> None:
        with pytest.raises(ValueError, match="LBFGS"):
            hvd.broadcast_optimizer_state(torch.optim.LBFGS(self.net().parameters()), 0)

    @several
    def test_optimizers_of_different_models_are_an_error_on_all_ranks(self) -> None:
        net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + hvd.rank())])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with pytest.raises(ValueError, match="parameters"):
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
