"""A wrapped optimizer takes the place of the one that it was made of."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from sirtaki.torch.gradients.optimizer_state import _pack, _unpack


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)


class TestAfterLoading:
    """What was built on the optimizer inside works on, once the wrapper has loaded a state."""

    def test_a_schedule_changes_the_learning_rate(self) -> None:
        inner = sgd(nn.Linear(2, 2))
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(inner)
        optimizer.load_state_dict(optimizer.state_dict())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the schedule watches the optimizer it was given
            scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.25

    def test_groups_that_somebody_holds_are_those_of_the_wrapper(self) -> None:
        inner = sgd(nn.Linear(2, 2))
        group = inner.param_groups[0]
        optimizer = hvd.DistributedOptimizer(inner)
        saved = optimizer.state_dict()
        saved["param_groups"][0]["lr"] = 0.125
        optimizer.load_state_dict(saved)
        assert group["lr"] == 0.125
        assert optimizer.param_groups[0] is group

    def test_the_state_is_loaded_and_shared(self) -> None:
        net = nn.Linear(2, 2)
        trained = sgd(net)
        net(torch.ones(1, 2)).sum().backward()
        trained.step()
        inner = sgd(net)
        optimizer = hvd.DistributedOptimizer(inner)
        optimizer.load_state_dict(trained.state_dict())
        assert inner.state is optimizer.state
        assert torch.equal(inner.state[net.weight]["momentum_buffer"], torch.ones(2, 2))

    def test_a_state_may_be_loaded_again(self) -> None:
        optimizer = hvd.DistributedOptimizer(sgd(nn.Linear(2, 2)))
        saved = copy.deepcopy(optimizer.state_dict())
        for _ in range(2):
            optimizer.load_state_dict(saved)
        assert optimizer.state_dict() == saved


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_with_what_to_do_instead(duplicate) -> None:
    optimizer = hvd.DistributedOptimizer(sgd(nn.Linear(2, 2)))
    with pytest.raises(TypeError, match=r"state_dict\(\)"):
        duplicate(optimizer)


def test_its_class_prints_with_horovod_in_its_name() -> None:
    optimizer = hvd.DistributedOptimizer(sgd(nn.Linear(2, 2)))
    assert str(type(optimizer)) == "<class 'horovod.torch.optimizer.SGD'>"


def test_received_state_is_made_on_the_device_of_its_parameter() -> None:
    """The device without data stands for an accelerator: nothing but shapes is packed."""
    params = [torch.nn.Parameter(torch.ones(2, device=device)) for device in ("cpu", "meta")]
    sender = torch.optim.SGD(params, lr=0.5, momentum=0.9)
    for p in params:
        sender.state[p]["momentum_buffer"] = torch.ones(2, device="meta")
        sender.state[p]["step"] = torch.tensor(3.0)
    packed, sent = _pack(sender, params)
    receiver = torch.optim.SGD(params, lr=0.1)
    received, shared = _unpack(packed, receiver, params)
    assert shared is None
    assert [t.shape for t in received] == [t.shape for t in sent]
    assert receiver.param_groups[0]["lr"] == 0.5
    for p in params:
        assert receiver.state[p]["momentum_buffer"].device == p.device
        assert receiver.state[p]["step"].device.type == "cpu"
