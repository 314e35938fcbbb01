"""A training function is called again after the loss of a peer, and other errors end it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sirtaki import elastic
from sirtaki.core import elastic as worker
from sirtaki.core.errors import (
    CollectiveTimeoutError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MismatchError,
    PeerLostError,
)
from sirtaki.core.operations.objects import pickled
from sirtaki.core.world import state as world_state
from sirtaki.elastic.run import is_loss


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Be a process of an elastic job; returns what it reports to its driver."""
    said: list[tuple[str, int]] = []
    monkeypatch.setattr(worker, "is_elastic", lambda: True)
    monkeypatch.setattr(worker, "has_newcomers", lambda: False)
    monkeypatch.setattr(worker, "listen", lambda _: None)
    monkeypatch.setattr(worker, "report", lambda error, step: said.append((str(error), step)))
    return said


class Recording(elastic.ObjectState):
    """Notes what is called."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(lambda value: value, lambda: 0, **kwargs)
        self.calls: list[str] = []

    def sync(self) -> None:
        self.calls.append("sync")
        super().sync()

    def restore(self) -> None:
        self.calls.append("restore")
        super().restore()

    def reset(self) -> None:
        self.calls.append("on_reset")


def trained(state: Recording, *errors: BaseException) -> Any:
    """Train, with one error at each call; the last call returns the step."""
    left = list(errors)

    def train(state: Recording, more: str) -> Any:
        state.step += 1
        state.save()
        state.step += 100
        if left:
            raise left.pop(0)
        return state.step, more

    return elastic.run_fn(train, lambda: state.calls.append("reset"))(state, "more")


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(
    "error", [PeerLostError("x"), CollectiveTimeoutError("x"), HorovodInternalError("x")]
)
def test_a_lost_peer_costs_what_was_not_committed(error: Exception) -> None:
    state = Recording(step=0)
    assert trained(state, error) == (102, "more")
    assert state.calls == ["sync", "restore", "reset", "on_reset", "sync"]


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(("skips", "calls"), [(False, ["sync"]), (True, [])])
def test_changed_hosts_cost_nothing(skips: bool, calls: list[str]) -> None:
    state = Recording(step=0)
    assert trained(state, HostsUpdatedInterrupt(skips)) == (202, "more")
    assert state.calls == ["sync", "reset", "on_reset", *calls]


@pytest.mark.usefixtures("reports")
def test_newcomers_get_the_state_although_hosts_only_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "has_newcomers", lambda: True)
    state = Recording(step=0)
    trained(state, HostsUpdatedInterrupt(True))
    assert state.calls == ["sync", "reset", "on_reset", "sync"]


@pytest.mark.parametrize("error", [MismatchError("shapes"), ValueError("a bug")])
def test_an_error_of_the_program_is_raised_and_reported(
    reports: list[tuple[str, int]], error: Exception
) -> None:
    state = Recording(step=0)
    with pytest.raises(type(error), match=str(error)):
        trained(state, error)
    assert reports == [(str(error), 0)]


@pytest.mark.parametrize("error", [PeerLostError("x"), HostsUpdatedInterrupt()])
def test_outside_of_elastic_jobs_there_is_no_next_world(error: Exception) -> None:
    state = Recording(step=0)
    with pytest.raises(type(error)):
        trained(state, error)


@pytest.mark.usefixtures("reports")
def test_a_peer_may_be_lost_again_while_the_new_world_begins() -> None:
    state = Recording(step=0)
    lost = [PeerLostError("in a callback")]

    def callback() -> None:
        if lost:
            raise lost.pop()

    state.register_reset_callbacks([callback])
    assert trained(state, PeerLostError("x")) == (102, "more")
    once = ["restore", "reset", "on_reset"]
    assert state.calls == ["sync", *once, *once, "sync"]


@pytest.mark.usefixtures("reports")
def test_what_is_said_of_hosts_while_a_world_begins_is_about_that_world() -> None:
    state = Recording(step=0)
    state.on_hosts_updated(1.0, 2)
    errors = [PeerLostError("x")]

    def train(state: Recording) -> str:
        if errors:
            raise errors.pop()
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            state.check_host_updates()
        assert caught.value.skip_sync, "only what was said last"
        return "went on"

    reset = lambda: state.on_hosts_updated(2.0, 1)  # noqa: E731
    assert elastic.run_fn(train, reset)(state) == "went on"


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def without_context(error: Exception, context: Exception) -> Exception:
    """What `raise error from None` raises while another one is handled."""
    error.__context__, error.__suppress_context__ = context, True
    return error


class FrameworkError(Exception):
    """An error of TensorFlow's own."""


FrameworkError.__module__ = "tensorflow.python.framework.errors_impl"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (caused(RuntimeError("in a hook"), PeerLostError("x")), True),
        (caused(RuntimeError("in a hook"), MismatchError("x")), False),
        (FrameworkError("PeerLostError: rank 1"), True),
        (FrameworkError("MismatchError: a HorovodInternalError"), False),
        (FrameworkError("out of memory"), False),
        (without_context(ValueError("a bug"), PeerLostError("x")), False),
        (RuntimeError("PeerLostError of somebody else"), False),
    ],
)
def test_a_loss_is_known_by_its_cause(error: Exception, expected: bool) -> None:
    assert is_loss(error) is expected


def test_a_state_holds_the_objects_that_it_is_given_and_copies_of_what_was_saved() -> None:
    notes = ["a"]
    state = Recording(notes=notes)
    assert state.notes is notes
    notes.append("b")
    state.restore()
    assert state.notes == ["a"]


class Loader:
    """Knows how far it has come, and which share of the data is its own."""

    def __init__(self, share: int) -> None:
        self.share, self.position, self.resets = share, 0, 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.position = state_dict["position"]

    def reset(self) -> None:
        self.resets += 1


def test_a_loader_returns_to_its_position_and_stays_the_one_that_it_is() -> None:
    loader = Loader(share=1)
    state = Recording(loader=loader)
    loader.position = 3
    state.save()
    loader.position = 4
    state.restore()
    assert state.loader is loader
    assert (loader.share, loader.position) == (1, 3)
    state.on_reset()
    assert loader.resets == 1
    assert state.state_dict() == {"loader": {"position": 3}}
    state.load_state_dict({"loader": {"position": 7}})
    assert (state.loader.position, state.loader.share) == (7, 1)


def test_a_loader_takes_the_position_of_another_rank_and_not_its_share() -> None:
    loader = Loader(share=1)
    state = elastic.ObjectState(lambda mine: {"loader": {"position": 5}}, lambda: 1, loader=loader)
    state.sync()
    assert (state.loader is loader, loader.share, loader.position) == (True, 1, 5)


def test_compiled_functions_may_contain_what_reset_callbacks_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world_state._Traced, "has_value", False)
    state = Recording()
    assert not world_state.functions_depend_on_world()
    state.register_reset_callbacks([lambda: None])
    assert world_state.functions_depend_on_world()


def test_reset_callbacks_run_in_their_order() -> None:
    state = Recording(step=0)
    calls: list[int] = []
    callbacks: list[Callable[[], object]] = [lambda: calls.append(1), lambda: calls.append(2)]
    state.register_reset_callbacks(callbacks)
    state.register_reset_callbacks([lambda: calls.append(3)])
    state.on_reset()
    assert calls == [1, 2, 3]


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(("result", "skips"), [(1, True), (2, False), (3, False)])
def test_a_commit_saves_and_then_tells_of_changed_hosts_once(result: int, skips: bool) -> None:
    state = Recording(step=0)
    state.step = 5
    state.on_hosts_updated(1.0, result)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is skips
    state.step = 6
    state.restore()
    assert state.step == 5
    state.commit()


@pytest.mark.usefixtures("reports")
def test_a_program_may_say_itself_when_it_saw_hosts_last() -> None:
    state = Recording(step=0)
    state._last_updated_timestamp = 9.0
    state._host_messages.put((8.0, 2))
    state.check_host_updates()


class Unpicklable:
    """It can be copied all the same."""

    def __deepcopy__(self, _memo: object) -> Unpicklable:
        return self

    def __reduce__(self) -> str:
        raise TypeError("no way")


def test_what_cannot_be_saved_is_named() -> None:
    words = "attribute 'lock' of the state, a lock, cannot be copied: cannot pickle"
    with pytest.raises(TypeError, match=words):
        Recording(step=0, lock=threading.Lock())
    state = Recording(step=0, lock=None)
    state.lock = threading.Lock()
    with pytest.raises(TypeError, match=words):
        state.commit()


def test_what_cannot_be_sent_is_named() -> None:
    state = elastic.ObjectState(lambda value: pickled(value), lambda: 0, step=0, x=Unpicklable())
    with pytest.raises(TypeError, match="'x' of the state, a Unpicklable, cannot be pickled: no"):
        state.sync()


@pytest.mark.usefixtures("reports")
def test_all_leave_with_the_code_that_the_driver_has_told_after_the_leave_callbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "leave_code", lambda: 75)
    state = Recording(step=0)
    state.register_leave_callbacks([lambda: state.calls.append("checkpoint")])
    state.on_hosts_updated(1.0, worker.LEAVE)
    with pytest.raises(SystemExit) as caught:
        state.commit()
    assert (caught.value.code, state.calls) == (75, ["checkpoint"])
