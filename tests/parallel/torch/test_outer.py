"""Training with rare exchanges: DiLoCo and LocalSGD against an oracle that plays all ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.core.world import state
from tests.outer_oracle import LR, Array, Oracle, target

several = pytest.mark.skipif("hvd.size() == 1", reason="needs several ranks")


class Model(torch.nn.Module):
    """Four parameters, whose gradient is the distance from a target of the rank and step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 2).double()
        self.last = torch.nn.Linear(2, 2).double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for param in self.parameters():
                param.copy_(torch.randn(param.shape, generator=generator))


def train(model: torch.nn.Module, optimizer: Any, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        for param in model.parameters():
            goal = torch.from_numpy(target(hvd.rank(), step, tuple(param.shape)))
            param.grad = param.detach() - goal
        optimizer.step()


def start() -> list[Array]:
    return [param.detach().numpy() for param in Model().parameters()]


def require_close(model: torch.nn.Module, expected: list[Array]) -> None:
    for param, wanted in zip(model.parameters(), expected, strict=True):
        np.testing.assert_allclose(param.detach().numpy(), wanted, rtol=1e-6, atol=1e-9)


BOTH = [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("fragments", "parts", "delay", "mix"),
    [
        (1, [[0, 1, 2, 3]], 0, 0.0),
        (1, [[0, 1, 2, 3]], 3, 0.0),
        (2, BOTH, 0, 0.0),
        (2, BOTH, 1, 0.5),
        (4, [[0], [1], [2], [3]], 0, 0.25),
    ],
)
def test_diloco_goes_where_the_oracle_goes(
    fragments: int, parts: list[list[int]], delay: int, mix: float
) -> None:
    model = Model()
    cut = [model.first, model.last] if parts == BOTH else fragments
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    optimizer: Any = hvd.DiLoCo(inner, model, sync_every=4, fragments=cut, delay=delay, mix=mix)
    train(model, optimizer, 14)
    oracle = Oracle(start(), hvd.size(), parts, 4, delay, mix)
    oracle.run(14)
    require_close(model, oracle.local[hvd.rank()])
    for index, gradient in oracle.outer.items():
        oracle.apply(index, gradient)
    optimizer.finish()
    require_close(model, [np.mean(each, axis=0) for each in zip(*oracle.local, strict=True)])


def test_local_sgd_averages_parameters() -> None:
    model = Model()
    optimizer: Any = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=LR), model, sync_every=3)
    train(model, optimizer, 7)
    oracle = Oracle(start(), hvd.size(), [[0, 1, 2, 3]], 3, lr=1.0, momentum=0.0)
    oracle.run(7)
    require_close(model, oracle.local[hvd.rank()])


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """As if every two ranks were on a host of their own; the ranks of each host."""
    world = state.current_world()
    of = [rank // 2 for rank in range(hvd.size())]
    monkeypatch.setattr(world, "membership", world.membership.on(of))
    before = list(world.process_sets)
    yield [[rank for rank in range(hvd.size()) if of[rank] == host] for host in range(of[-1] + 1)]
    for each in [each for each in world.process_sets if each not in before]:
        hvd.remove_process_set(each)


def test_ranks_of_a_host_average_each_step_and_hosts_now_and_then(hosts: list[list[int]]) -> None:
    for _ in range(2):  # with the same process sets
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=LR)
        of_host = hvd.DistributedOptimizer(inner, model.named_parameters())
        parts = [model.first, model.last]
        optimizer: Any = hvd.DiLoCo(of_host, model, sync_every=4, fragments=parts, between="hosts")
        train(model, optimizer, 6)
        oracle = Oracle(start(), hvd.size(), BOTH, 4)
        oracle.run(6, hosts)
        require_close(model, oracle.local[hvd.rank()])


def test_what_cannot_be_between_hosts_is_refused() -> None:
    with pytest.raises(ValueError, match=r'between="hosts" needs an hvd\.DistributedOptimizer'):
        wrap(between="hosts")()
    with pytest.raises(ValueError, match="between='racks' must be"):
        wrap(between="racks")()


@several
def test_a_process_set_and_between_hosts_exclude_each_other() -> None:
    alone = hvd.add_process_set([0])
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    of_one = hvd.DistributedOptimizer(inner, model.named_parameters(), process_set=alone)
    own = hvd.DistributedOptimizer(inner, model.named_parameters())
    for optimizer, sets in ((of_one, {}), (own, {"process_set": alone})):
        with pytest.raises(ValueError, match='between="hosts" is for all ranks'):
            hvd.DiLoCo(optimizer, model, 2, between="hosts", **sets)
    hvd.remove_process_set(alone)


def test_another_outer_optimizer() -> None:
    model = Model()
    optimizer: Any = hvd.DiLoCo(
        torch.optim.SGD(model.parameters(), lr=LR),
        model,
        sync_every=2,
        outer_optimizer=lambda params: torch.optim.SGD(params, lr=0.5),
    )
    train(model, optimizer, 4)
    oracle = Oracle(start(), hvd.size(), [[0, 1, 2, 3]], 2, lr=0.5, momentum=0.0)
    oracle.run(4)
    require_close(model, oracle.local[hvd.rank()])


def test_a_schedule_made_before_or_after_works_on_it() -> None:
    rates = []
    for before in (True, False):
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=LR)
        schedule = torch.optim.lr_scheduler.StepLR(inner, 2) if before else None
        optimizer: Any = hvd.DiLoCo(inner, model, sync_every=2)
        schedule = schedule or torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for step in range(4):
            train(model, optimizer, 1, step)
            schedule.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert rates[0] == rates[1] == [pytest.approx(LR / 100)]


@several
def test_a_step_that_one_rank_skips_for_an_infinity_counts() -> None:
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer: Any = hvd.DiLoCo(torch.optim.SGD(model.parameters(), lr=LR), model, sync_every=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    skipped = model.weight.detach().clone()
    for step in range(3):
        bad = hvd.rank() == 1 and step == 0
        optimizer.zero_grad()
        scaler.scale(model(torch.full((1, 2), float("inf") if bad else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert not {"grad_scale", "found_inf"} & set(vars(optimizer))
        if bad:
            assert torch.equal(model.weight.detach(), skipped)
        elif step == 0:  # the gradient is 1, whatever the scale
            torch.testing.assert_close(model.weight.detach(), skipped - LR)
    optimizer.finish()
    weights = hvd.allgather_object(model.weight.tolist())
    assert weights == [weights[0]] * hvd.size()


def test_floating_point_buffers_are_averaged_and_others_are_not() -> None:
    model = torch.nn.BatchNorm1d(2)
    optimizer: Any = hvd.DiLoCo(torch.optim.SGD(model.parameters(), lr=LR), model, sync_every=1)
    assert model.running_mean is not None
    assert model.num_batches_tracked is not None
    model.running_mean.fill_(float(hvd.rank()))
    model.num_batches_tracked.fill_(hvd.rank())
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    optimizer.step()
    assert model.running_mean.tolist() == [(hvd.size() - 1) / 2] * 2
    assert int(model.num_batches_tracked) == hvd.rank()


@pytest.mark.parametrize("delay", [0, 1])
def test_a_checkpoint_at_an_outer_step_goes_on_as_if_nothing_had_happened(delay: int) -> None:
    def made() -> tuple[Model, Any]:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.5)
        return model, hvd.DiLoCo(inner, model, sync_every=4, fragments=2, delay=delay)

    model, optimizer = made()
    train(model, optimizer, 4)
    saved = copy.deepcopy(optimizer.state_dict())
    assert set(saved) == {"state", "param_groups", "outer"}
    assert saved["outer"]["local_steps"] == 0
    other, loaded = made()
    other.load_state_dict(model.state_dict())
    loaded.load_state_dict(saved)
    train(model, optimizer, 6, 4)
    train(other, loaded, 6, 4)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    # The local optimizer alone can load it, too.
    torch.optim.SGD(Model().parameters(), lr=LR, momentum=0.5).load_state_dict(saved)


def test_broadcast_optimizer_state_carries_the_outer_state() -> None:
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    optimizer: Any = hvd.DiLoCo(inner, model, sync_every=2)
    train(model, optimizer, 2)
    wanted = [one.clone() for one in optimizer.state_dict()["outer"]["saved"]]
    fresh = Model()
    other: Any = hvd.DiLoCo(torch.optim.SGD(fresh.parameters(), lr=LR), fresh, sync_every=2)
    if hvd.rank() == 0:
        other.load_state_dict(optimizer.state_dict())
    hvd.broadcast_optimizer_state(other, 0)
    got = other.state_dict()["outer"]
    assert got["step"] == 2
    assert all(torch.equal(a, b) for a, b in zip(got["saved"], wanted, strict=True))
    assert (
        got["optimizer"]["state"].keys()
        == optimizer.state_dict()["outer"]["optimizer"]["state"].keys()
    )


def test_a_state_that_comes_while_an_exchange_runs_drops_it_on_all_ranks() -> None:
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    optimizer: Any = hvd.DiLoCo(inner, model, sync_every=4, delay=3)
    train(model, optimizer, 5)
    loaded = copy.deepcopy(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, 0)
    train(model, optimizer, 4, 5)
    optimizer.load_state_dict(loaded)
    train(model, optimizer, 4, 5)
    optimizer.finish()
    reached = [param.tolist() for param in model.parameters()]
    assert hvd.allgather_object(reached) == [reached] * hvd.size()


def test_a_parameter_without_dimensions_is_exchanged() -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(2.0))])
    optimizer: Any = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=1.0), model, sync_every=1)
    model[0].grad = torch.tensor(float(hvd.rank()))
    optimizer.step()
    assert model[0].item() == 2.0 - (hvd.size() - 1) / 2


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_compression_loses_nothing_in_the_long_run(name: str) -> None:
    model = torch.nn.Linear(300, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer: Any = hvd.DiLoCo(
        torch.optim.SGD(model.parameters(), lr=1.0),
        model,
        sync_every=1,
        outer_lr=1.0,
        outer_momentum=0.0,
        compression=getattr(hvd.Compression, name),
    )
    pull = torch.linspace(1e-3, 1, 300).view(1, 300) * (hvd.rank() + 1)
    for _ in range(30):
        model.weight.grad = -pull
        optimizer.step()
    mean = torch.linspace(1e-3, 1, 300) * (hvd.size() + 1) / 2
    torch.testing.assert_close(model.weight.detach()[0] / 30, mean, atol=2e-3, rtol=5e-3)


def wrap(**options: Any) -> Callable[[], object]:
    model = options.pop("model", None) or Model()
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    return lambda: hvd.DiLoCo(inner, options.pop("of", model), **{"sync_every": 4, **options})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sync_every": 3, "fragments": 2}, "sync_every=3 must be a positive multiple of the 2"),
        ({"sync_every": 0}, "sync_every=0 must be a positive multiple"),
        ({"fragments": 2, "delay": 2}, "delay=2 must be at least 0 and less than .* = 2"),
        ({"mix": 1.5}, "mix=1.5 must be from 0"),
        ({"fragments": 5}, "fragments=5 must be at least 1 and at most .* 4"),
        ({"of": torch.nn.Linear(1, 1)}, "4 parameters that are not the model's"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=rf"^hvd\.DiLoCo: .*{error}"):
        wrap(**options)()


def test_fragments_that_overlap_do_not_cover_or_are_empty_are_refused() -> None:
    model = Model()
    for modules, error in (
        ([model.first, model], "first.weight is in fragments 0 and 1"),
        ([model.first], "no fragment has last.weight and 1 more"),
        ([model, torch.nn.ReLU()], "fragment 1 has no trained parameter"),
    ):
        with pytest.raises(ValueError, match=error):
            wrap(model=model, fragments=modules)()


def test_a_distributed_optimizer_goes_inside_and_not_around() -> None:
    with pytest.raises(ValueError, match=r"wrap a DistributedOptimizer in hvd\.DiLoCo"):
        hvd.DistributedOptimizer(wrap()())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exchanges parameters already"):
        hvd.DiLoCo(wrap()(), Model(), sync_every=2)  # type: ignore[arg-type]


def around(compression: Any = hvd.Compression.none) -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(5)
    model = torch.nn.Linear(6, 6)
    inner = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=LR, momentum=0.5),
        model.named_parameters(),
        compression=compression,
    )
    return model, hvd.DiLoCo(inner, model, sync_every=2)


def test_the_states_of_both_optimizers_are_saved_and_either_can_be_loaded_alone() -> None:
    model, optimizer = around(hvd.Compression.powersgd(rank=1))
    for _ in range(3):
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    saved = copy.deepcopy(optimizer.state_dict())
    assert list(saved["compression_factors"]) == [0]
    assert saved["outer"]["step"] == 3
    _, other = around(hvd.Compression.powersgd(rank=1))
    other.load_state_dict(saved)
    factors = other.state_dict()["compression_factors"]
    assert torch.equal(factors[0], saved["compression_factors"][0])
    hvd.broadcast_optimizer_state(other, 0)
    del saved["outer"]
    _, other = around(hvd.Compression.powersgd(rank=1))
    other.load_state_dict(saved)
    assert other.outer_steps == 0
    del saved["compression_factors"]
    other.load_state_dict(saved)
    assert other.state_dict()["state"].keys() == {0, 1}


@several
def test_a_scaler_does_not_meet_gradients_that_are_being_reduced() -> None:
    model, optimizer = around()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(2, 6)).sum()).backward()
    with pytest.raises(RuntimeError, match="GradScaler met gradients that are being reduced"):
        scaler.step(optimizer)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        scaler.step(optimizer)


@several
def test_settings_and_parameters_that_differ_are_named_before_the_first_step() -> None:
    model = Model()
    optimizer: Any = wrap(model=model, sync_every=4 if hvd.rank() else 8)()
    with pytest.raises(ValueError, match="sync_every is 8 on rank 0 and 4 on rank 1"):
        train(model, optimizer, 1)
    with pytest.raises(
        ValueError, match=r"the outer optimizer is SGD .* on rank 0 and SGD .* on ra"
    ):
        train(model, wrap(model=model, outer_lr=0.5 + hvd.rank())(), 1)
    other = Model()
    with torch.no_grad():
        other.first.bias.add_(float(hvd.rank()))
    optimizer = wrap(model=other)()
    with pytest.raises(ValueError, match=r"parameter first\.bias differs .* hvd\.broadcast_par"):
        train(other, optimizer, 1)
    # Afterwards it goes on as if they had been equal from the start.
    hvd.broadcast_parameters(other.state_dict(), 0)
    train(other, optimizer, 1)
    saved = [one.tolist() for one in optimizer.state_dict()["outer"]["saved"]]
    assert hvd.allgather_object(saved) == [saved] * hvd.size()


def test_a_model_that_has_other_parameters_later_is_named() -> None:
    model = Model()
    optimizer: Any = wrap(model=model)()
    train(model, optimizer, 1)
    model.last = torch.nn.Linear(2, 2).double()
    with pytest.raises(RuntimeError, match="2 of its 4 parameters are no longer the model's"):
        train(model, optimizer, 3)  # to the next exchange


@several
def test_ranks_outside_of_the_process_set_train_alone() -> None:
    others = hvd.add_process_set(list(range(1, hvd.size())))
    model, alone = Model(), Model()
    train(model, wrap(model=model, process_set=others)(), 5)
    train(alone, torch.optim.SGD(alone.parameters(), lr=LR), 5)
    if hvd.rank() == 0:
        require_close(model, [param.detach().numpy() for param in alone.parameters()])
    hvd.remove_process_set(others)
