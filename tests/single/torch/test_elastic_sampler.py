"""Samples are used once whatever happens to worlds."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sirtaki.torch as hvd
from sirtaki.core.world import state as world_state
from sirtaki.data.sampler import Position


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
    committed = Position(epoch=epoch, processed_num=0)
    for size, batches, in_vain in [*worlds, (2, 60, 0)]:
        ranks = samplers(count, size)
        for Worlds.rank, sampler in enumerate(ranks):
            sampler.load_state_dict(committed)
        here: list[int] = []
        for number in range(batches):
            for sampler in ranks:
                here += sampler.get_indices(number, batch)
                sampler.record_batch(number, batch)
        committed = ranks[0].state_dict()
        assert all(sampler.state_dict() == committed for sampler in ranks)
        for number in range(batches, batches + in_vain):
            ranks[0].record_batch(number, batch)  # lost with the world
        assert used.isdisjoint(here)
        used |= set(here)
        assert len(used) == committed["processed_num"]
        assert len(here) - len(set(here)) < size, "only so many as make the ranks equal"
    assert used == set(range(count))


def test_the_number_of_a_batch_does_not_matter() -> None:
    """Programs of Horovod count the batches of the epoch, which go on after a reset."""
    (sampler,) = samplers(12, 1, shuffle=False)
    for number in (0, 1, 7):
        sampler.record_batch(number, 2)
    sampler.load_state_dict(sampler.state_dict())
    assert list(sampler) == list(range(6, 12))
    sampler.record_batch(3, 2)
    assert sampler.processed_num == 8


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


class Committed(NamedTuple):
    """What a rank has committed."""

    commits: int
    used: Counter[int]
    position: Position


class World:
    """Ranks that train on an epoch with `even="join"`, each with a state of its own.

    The parameters of a rank are the samples whose gradients it has applied. Who has no batch left
    has joined: it neither steps nor commits.
    """

    def __init__(self, count: int, batch: int, size: int, newest: Committed) -> None:
        self.batch = batch
        self.ranks = samplers(count, size, even="join")
        for Worlds.rank, sampler in enumerate(self.ranks):
            sampler.load_state_dict(newest.position)
        self.committed = [newest] * size

    def step(self, number: int, in_time: set[int]) -> bool:
        """Do a step together, which the ranks `in_time` commit; False if all have joined."""
        batches = [sampler.get_indices(number, self.batch) for sampler in self.ranks]
        together = Counter(sample for batch in batches for sample in batch)
        for rank, sampler in enumerate(self.ranks):
            if batches[rank] and rank in in_time:
                sampler.record_batch(number, self.batch)
                commits, used, _ = self.committed[rank]
                self.committed[rank] = Committed(commits + 1, used + together, sampler.state_dict())
        return bool(together)

    def newest(self, ranks: set[int]) -> Committed:
        """What some ranks agree on, as `sync` does: the lowest of those with most commits."""
        return max((self.committed[rank] for rank in sorted(ranks)), key=lambda each: each.commits)


SOME_RANKS = st.sets(st.integers(0, 4), min_size=1)
# Of each world: its size, its whole steps, who commits the step in which it ends, who survives.
LOSSES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5), SOME_RANKS, SOME_RANKS))


@given(st.integers(0, 60), st.integers(1, 4), LOSSES, st.integers(1, 5))
def test_with_join_each_sample_is_used_exactly_once_through_losses_and_joins(
    count: int, batch: int, losses: list[tuple[int, int, set[int], set[int]]], last_size: int
) -> None:
    newest = Committed(0, Counter(), Position(epoch=0, processed_num=0))
    for size, steps, in_time, survivors in losses:
        everybody = set(range(size))
        world = World(count, batch, size, newest)
        for number in range(steps):
            world.step(number, everybody)
        world.step(steps, in_time)
        newest = world.newest(survivors & everybody or {0})
        assert set(newest.used.values()) <= {1}
        assert newest.position["processed_num"] == len(newest.used)
    world, number = World(count, batch, last_size, newest), 0
    while world.step(number, set(range(last_size))):
        number += 1
    assert world.newest(set(range(last_size))).used == Counter(range(count))


@given(st.integers(0, 60), st.integers(1, 5))
def test_with_join_ranks_differ_by_a_sample_at_most_and_the_first_has_most(
    count: int, size: int
) -> None:
    lengths = [len(sampler) for sampler in samplers(count, size, even="join")]
    assert sum(lengths) == count
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


def test_dropped_samples_are_those_that_would_make_ranks_unequal() -> None:
    left, right = samplers(5, 2, shuffle=False, even="drop")
    assert (list(left), list(right)) == ([0, 2], [1, 3])
    assert left.total_size == 4


def test_indices_alone_do_not_tell_how_far_unequal_ranks_have_come() -> None:
    _, right = samplers(5, 2, even="join")
    with pytest.raises(ValueError, match="call record_batch"):
        right.record_indices(right.indices)
