"""The samples of a step are the same in worlds of all sizes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sirtaki.torch as hvd
from sirtaki.core.world import state as world_state


class Worlds:
    """Makes samplers of ranks that are not there."""

    rank, size = 0, 1


@pytest.fixture(autouse=True)
def _worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_state, "is_initialized", lambda: True)
    monkeypatch.setattr(world_state, "rank", lambda: Worlds.rank)
    monkeypatch.setattr(world_state, "size", lambda: Worlds.size)
    monkeypatch.setattr(world_state, "current_world", SimpleNamespace)


def batches(count: int, batch: int, parts: int, size: int, begun: int = 0) -> list[list[list[int]]]:
    """The parts of all ranks in each step."""
    ranks = []
    for Worlds.rank in range(size):
        Worlds.size = size
        sampler = hvd.elastic.ConstantBatchSampler(range(count), batch, parts)
        sampler.load_state_dict({"epoch": 3, "processed_num": begun})
        parts_here = list(sampler)
        assert len(parts_here) == len(sampler)
        ranks.append([iter(parts_here)] * sampler.passes)
    steps = -(-(count - begun) // (batch * parts))
    return [[next(each) for rank in ranks for each in rank] for _ in range(steps)]


SIZES = st.integers(1, 6).flatmap(lambda parts: st.tuples(st.just(parts), st.integers(1, parts)))


@given(st.integers(1, 60), st.integers(1, 4), SIZES)
def test_each_step_has_the_same_samples_in_worlds_of_all_sizes(
    count: int, batch: int, sizes: tuple[int, int]
) -> None:
    parts, size = sizes
    alone = [sorted(map(tuple, step)) for step in batches(count, batch, parts, 1)]
    assert [sorted(map(tuple, step)) for step in batches(count, batch, parts, size)] == alone
    used = [sample for step in alone for part in step for sample in part]
    assert set(used) == set(range(count))
    assert len(used) - count < batch * parts


@given(st.integers(1, 60), st.integers(1, 4), SIZES, st.integers(0, 5))
def test_another_world_goes_on_with_the_next_step(
    count: int, batch: int, sizes: tuple[int, int], done: int
) -> None:
    parts, size = sizes
    whole = batches(count, batch, parts, 1)
    begun = min(count, done * batch * parts)
    rest = batches(count, batch, parts, size, begun)
    assert [sorted(map(tuple, step)) for step in rest] == [
        sorted(map(tuple, step)) for step in whole[done:]
    ]


def test_more_ranks_than_parts_are_refused() -> None:
    Worlds.rank, Worlds.size = 0, 3
    with pytest.raises(ValueError, match="3 ranks cannot share 2 parts"):
        hvd.elastic.ConstantBatchSampler(range(9), 1, 2)
