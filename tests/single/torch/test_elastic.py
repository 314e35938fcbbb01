"""Samples are used once whatever happens to worlds; states return to what was committed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sirtaki.torch as hvd
from sirtaki.core.world import state as world_state
from sirtaki.torch.elastic import handlers


class Worlds:
    """Makes samplers of ranks that are not there."""

    rank, size = 0, 1


@pytest.fixture(autouse=True)
def _worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_state, "is_initialized", lambda: True)
    monkeypatch.setattr(world_state, "rank", lambda: Worlds.rank)
    monkeypatch.setattr(world_state, "size", lambda: Worlds.size)


def samplers(count: int, size: int, **kwargs: object) -> list[hvd.elastic.ElasticSampler]:
    made = []
    for rank in range(size):
        Worlds.rank, Worlds.size = rank, size
        made.append(hvd.elastic.ElasticSampler(range(count), **kwargs))  # type: ignore[arg-type]
    return made


# Of each world: its size, how many batches it commits, and how many more it computes in vain.
WORLDS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 2)), max_size=6)


@given(st.integers(1, 60), st.integers(1, 4), WORLDS, st.integers(0, 3))
def test_an_epoch_uses_each_sample_once_through_any_worlds(
    count: int, batch: int, worlds: list[tuple[int, int, int]], epoch: int
) -> None:
    used: set[int] = set()
    committed = {"epoch": epoch, "processed_num": 0}
    for size, batches, in_vain in [*worlds, (2, 60, 0)]:
        ranks = samplers(count, size)
        for Worlds.rank, sampler in enumerate(ranks):
            sampler.load_state_dict(committed)  # type: ignore[arg-type]
        here: list[int] = []
        for number in range(batches):
            for sampler in ranks:
                here += sampler.get_indices(number, batch)
                sampler.record_batch(number, batch)
        committed = dict(ranks[0].state_dict())
        assert all(sampler.state_dict() == committed for sampler in ranks)
        for number in range(batches, batches + in_vain):
            ranks[0].record_batch(number, batch)  # lost with the world
        assert used.isdisjoint(here)
        used |= set(here)
        assert len(used) == committed["processed_num"]
        assert len(here) - len(set(here)) < size, "only so many as make the ranks equal"
    assert used == set(range(count))


def test_each_epoch_has_an_order_of_its_own_the_same_on_all_ranks() -> None:
    (alone,) = samplers(10, 1, seed=3)
    first = list(alone)
    alone.set_epoch(1)
    assert sorted(first) == sorted(alone) == list(range(10))
    assert list(alone) != first
    left, right = samplers(10, 2, seed=3)
    assert [sample for pair in zip(left, right, strict=True) for sample in pair] == first


def test_without_shuffling_samples_keep_their_order() -> None:
    left, right = samplers(5, 2, shuffle=False)
    assert (list(left), list(right)) == ([0, 2, 4], [1, 3, 0])
    assert (len(left), len(right)) == (3, 3)


def test_indices_are_recorded_as_batches_are() -> None:
    left, _ = samplers(10, 2)
    left.record_indices(left.indices[:2])
    left.record_indices(left.indices[2:3])
    assert left.state_dict() == {"epoch": 0, "processed_num": 6}


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
    with pytest.raises(ValueError, match="LBFGS asks the other ranks in the middle of a step"):
        hvd.elastic.TorchState(model, torch.optim.LBFGS(parameters), every_step=True)
    two = [torch.optim.SGD([each], lr=0.1) for each in parameters]
    with pytest.raises(ValueError, match="needs one optimizer and got 2"):
        hvd.elastic.TorchState(model, two[0], other=two[1], every_step=True)
    parameters[0]._in_backward_optimizers = two  # as torch.distributed.optim leaves it
    with pytest.raises(ValueError, match="applies gradients within backward"):
        hvd.elastic.TorchState(model, two[0], every_step=True)


def test_steps_without_commits_are_warned_about() -> None:
    state = kept(torch.nn.Linear(2, 1))
    step(state)
    with pytest.warns(UserWarning, match="called twice without state.commit"):
        step(state)
