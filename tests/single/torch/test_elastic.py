"""States return to what was committed."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.torch.elastic import handlers
from sirtaki.torch.gradients.adasum_optimizer import _DistributedAdasumOptimizer
from sirtaki.torch.gradients.wrapping import adopt


def state_of(model: torch.nn.Module) -> hvd.elastic.TorchState:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    return hvd.elastic.TorchState(model, optimizer, epoch=0, notes=["a"])


def step(state: hvd.elastic.TorchState) -> None:
    state.model(torch.ones(1, 2)).sum().backward()
    state.optimizer.step()


def test_a_state_returns_to_what_was_saved_of_model_optimizer_and_objects() -> None:
    model = torch.nn.Linear(2, 1)
    state = state_of(model)
    step(state)
    state.epoch = 3
    state.notes.append("b")
    state.save()
    saved = [parameter.detach().clone() for parameter in model.parameters()]
    momentum = state.optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    step(state)
    state.epoch = 4
    state.notes.append("c")
    for _ in range(2):
        state.restore()
        assert (state.epoch, state.notes) == (3, ["a", "b"])
        assert all(map(torch.equal, model.parameters(), saved))
        found = state.optimizer.state_dict()["state"][0]["momentum_buffer"]
        assert torch.equal(found, momentum)
        step(state)


def test_a_state_looks_after_another_model_when_it_is_assigned() -> None:
    state = state_of(torch.nn.Linear(2, 1))
    other = torch.nn.Linear(2, 1)
    state.model = other
    with torch.no_grad():
        other.weight.zero_()
    state.restore()
    assert state.model is other
    assert other.weight.abs().sum() > 0


def test_more_types_can_have_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter(hvd.elastic.StateHandler):
        def save(self) -> None:
            self.saved = self.value[0]

        def restore(self) -> None:
            self.value[0] = self.saved

    known = hvd.elastic.get_handler_registry()
    hvd.elastic.set_handler_registry([(list, Counter), *known])
    try:
        state = hvd.elastic.TorchState(counter=[1])
    finally:
        hvd.elastic.set_handler_registry(known)
    state.save()
    state.counter[0] = 2
    state.restore()
    assert state.counter == [1]


def test_a_loss_within_sync_leaves_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 1)
    state = state_of(model)
    state.epoch = 1
    state.save()
    saved = [parameter.detach().clone() for parameter in model.parameters()]

    def overwrite(parameters: dict[str, torch.Tensor], root_rank: int) -> None:
        for parameter in parameters.values():
            parameter.zero_()

    def lose(*_: object, **__: object) -> None:
        raise hvd.PeerLostError("rank 0 died")

    monkeypatch.setattr(handlers, "broadcast_parameters", overwrite)
    monkeypatch.setattr(handlers, "broadcast_optimizer_state", lose)
    with pytest.raises(hvd.PeerLostError):
        state.sync()
    state.restore()
    assert all(map(torch.equal, model.parameters(), saved))
    assert state.epoch == 1


def test_a_model_that_is_assigned_later_is_looked_after() -> None:
    state = hvd.elastic.TorchState(epoch=0)
    state.model = torch.nn.Linear(2, 1)
    saved = state.model.weight.detach().clone()
    with torch.no_grad():
        state.model.weight.zero_()
    state.restore()
    assert torch.equal(state.model.weight, saved)


def kept(model: torch.nn.Module, **more: object) -> hvd.elastic.TorchState:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    return hvd.elastic.TorchState(model, optimizer, every_step=True, epoch=0, **more)


def test_with_every_step_a_state_keeps_the_parameters_of_the_step_and_copies_the_rest() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    state = kept(model)
    model(torch.randn(4, 2)).sum().backward()
    state.optimizer.step()
    state.epoch = 1
    state.commit()
    parameters = [each.detach().clone() for each in model.parameters()]
    buffers = [each.clone() for each in model.buffers()]
    expected = torch.get_rng_state()
    # The step that fails has done its forward pass and some of its gradients.
    model(torch.randn(4, 2)).sum().backward()
    state.epoch = 2
    state.restore()
    assert all(map(torch.equal, model.parameters(), parameters))
    assert all(map(torch.equal, model.buffers(), buffers))
    assert torch.equal(torch.get_rng_state(), expected)
    assert state.epoch == 1
    assert all(each.grad is None for each in model.parameters())


def test_with_every_step_a_commit_allocates_nothing_of_the_size_of_the_model() -> None:
    model = torch.nn.Linear(1000, 1000)
    state = kept(model)
    with torch.profiler.profile(profile_memory=True) as profiled:
        state.commit()
    allocated = [each.self_cpu_memory_usage for each in profiled.key_averages()]
    assert sum(max(0, each) for each in allocated) < 4 * 1000 * 1000 // 100


def test_objects_that_fit_the_parameters_come_before_newer_parameters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ahead, committed = kept(torch.nn.Linear(2, 1)), kept(torch.nn.Linear(2, 1))
    for each in (ahead, committed):
        step(each)
        each.commit()
    assert ahead._version() == committed._version()
    step(ahead)
    ahead.epoch = 1
    ahead.restore()
    assert ahead._version() < committed._version()
    assert ahead.epoch == 1, "its parameters are not older either"
    assert "between the optimizer's step 2 and state.commit()" in capsys.readouterr().err
    ahead.commit()
    assert ahead._version() > committed._version()


def test_with_every_step_a_loss_within_sync_leaves_the_step_of_this_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = torch.nn.Linear(2, 1)
    state = kept(model)
    state._shared = True
    step(state)
    state.commit()
    saved = [each.detach().clone() for each in model.parameters()]
    momentum = state.optimizer.state[model.weight]["momentum_buffer"]

    def overwrite(parameters: dict[str, torch.Tensor], root_rank: int) -> None:
        assert root_rank == 2
        for parameter in parameters.values():
            parameter.zero_()

    def lose(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
        optimizer.state.clear()
        raise hvd.PeerLostError("rank 2 died")

    monkeypatch.setattr(handlers, "broadcast_parameters", overwrite)
    monkeypatch.setattr(handlers, "broadcast_optimizer_state", lose)
    monkeypatch.setattr(state, "_newest", lambda: (2, (1, 2, 2)), raising=False)
    with pytest.raises(hvd.PeerLostError):
        state.sync()
    assert all(map(torch.equal, model.parameters(), saved))
    assert state.optimizer.state[model.weight]["momentum_buffer"] is momentum
    assert state._version() == (1, 1, 1)


def test_every_step_refuses_what_has_no_whole_steps() -> None:
    model = torch.nn.Linear(2, 1)
    parameters = list(model.parameters())
    with pytest.raises(
        ValueError, match="LBFGS, which asks the other ranks in the middle of a step"
    ):
        hvd.elastic.TorchState(model, torch.optim.LBFGS(parameters), every_step=True)
    with pytest.raises(ValueError, match="needs an optimizer, whose steps are counted"):
        hvd.elastic.TorchState(model, every_step=True)
    combining = adopt(torch.optim.SGD(parameters, lr=0.5), _DistributedAdasumOptimizer)
    with pytest.raises(ValueError, match="make a new TorchState"):
        kept(model).optimizer = combining


@pytest.mark.parametrize("which", ["two", "in backward"])
def test_every_step_copies_parameters_into_the_same_memory_where_steps_are_not_whole(
    which: str,
) -> None:
    model = torch.nn.Linear(2, 1)
    optimizers = optimizers_without_whole_steps(model, which)
    state = hvd.elastic.TorchState(model, every_step=True, epoch=0, **optimizers)

    def step() -> None:
        model.zero_grad()
        model(torch.rand(1, 2)).sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()

    step()
    state.epoch = 1
    state.commit()  # which allocates the momenta
    copied = state._handlers["model"]._saved["weight"]
    step()
    state.epoch = 2
    state.commit()
    assert state._handlers["model"]._saved["weight"] is copied
    expected = [each.detach().clone() for each in model.parameters()]
    generators = torch.get_rng_state()
    step()
    following = [each.detach().clone() for each in model.parameters()]
    state.epoch = 3
    state.restore()
    assert state.epoch == 2
    assert all(map(torch.equal, model.parameters(), expected))
    torch.set_rng_state(generators)
    step()
    assert all(map(torch.equal, model.parameters(), following)), "with the momenta of then"


def optimizers_without_whole_steps(
    model: torch.nn.Module, which: str
) -> dict[str, torch.optim.Optimizer]:
    if which == "in backward":
        from torch.distributed.optim import _apply_optimizer_in_backward  # 2 s, for this alone

        _apply_optimizer_in_backward(
            torch.optim.SGD, model.parameters(), {"lr": 0.5, "momentum": 0.5}
        )
        return {}
    found = [torch.optim.SGD([each], lr=0.5, momentum=0.5) for each in model.parameters()]
    return {"optimizer": found[0], "other": found[1]}


def test_steps_without_commits_are_warned_about() -> None:
    state = kept(torch.nn.Linear(2, 1))
    step(state)
    with pytest.warns(UserWarning, match="called twice without state.commit"):
        step(state)
