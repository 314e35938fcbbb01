"""Ranks with different numbers of batches do the same number of steps."""

from __future__ import annotations

import pytest

import sirtaki as hvd
from sirtaki.data import ShardSampler, equal_steps, plan


def own(count: int) -> list[tuple[int, int]]:
    return [(hvd.rank(), number) for number in range(count)]


@pytest.mark.parametrize("look_ahead", [1, 2, 8])
@pytest.mark.parametrize("base", [0, 1, 7, 8])
def test_the_rank_with_fewest_batches_ends_all(base: int, look_ahead: int) -> None:
    given = iter(own(base + hvd.rank()))
    assert list(equal_steps(given, look_ahead=look_ahead)) == own(base)


@pytest.mark.parametrize("look_ahead", [1, 2, 8])
@pytest.mark.parametrize("base", [1, 7, 8])
def test_others_repeat_their_last_batch(base: int, look_ahead: int) -> None:
    count, most = base + hvd.rank(), base + hvd.size() - 1
    got = list(equal_steps(own(count), "pad", look_ahead))
    assert got == own(count) + [(hvd.rank(), count - 1)] * (most - count)


def test_a_rank_without_a_batch_to_repeat_says_so() -> None:
    got = equal_steps(own(hvd.rank()), "pad", look_ahead=1)
    if hvd.rank() == 0 and hvd.size() > 1:
        with pytest.raises(ValueError, match="rank 0 has no batch at all"):
            next(got)
    elif hvd.size() > 1:
        assert next(got) == (hvd.rank(), 0)


def test_steps_may_use_collectives_between() -> None:
    for step in equal_steps(range(5 + hvd.rank())):
        assert hvd.allgather_object(step, name="step") == [step] * hvd.size()


def test_a_sampler_takes_the_place_of_its_rank() -> None:
    count = 10 * hvd.size() + 1
    mine = list(ShardSampler(count, "drop", shuffle=False))
    assert mine == list(range(count // hvd.size() * hvd.size()))[hvd.rank() :: hvd.size()]
    assert plan.place_of(None) == (hvd.rank(), hvd.size())
