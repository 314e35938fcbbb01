"""Ranks share out samples: each is used once, and all have as many batches."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.data import ShardSampler, equal_steps, plan, shard_huggingface, split_by_rank

COUNTS = st.integers(0, 60)
PARTS = st.integers(1, 9)
EVEN = st.sampled_from(["drop", "pad", "join"])
SIZES = st.lists(st.integers(1, 20), max_size=5)


def require_shares(parts: list[list[int]], count: int, even: plan.Even) -> None:
    """The parts are a sharing of the numbers below `count`."""
    used = Counter(number for part in parts for number in part)
    lengths = {len(part) for part in parts}
    of = len(parts)
    if even == "join":
        assert used == Counter(range(count))
        assert max(lengths) - min(lengths) <= 1
        return
    assert len(lengths) == 1, "all have as many"
    if even == "drop":
        assert lengths == {count // of}
        assert set(used.values()) <= {1}
    elif count:
        assert lengths == {math.ceil(count / of)}
        assert set(used) == set(range(count))
        # No sample is repeated again before all others have been.
        assert max(used.values()) - min(used.values()) <= 1


@given(COUNTS, PARTS, EVEN)
def test_numbers_are_dealt(count: int, of: int, even: plan.Even) -> None:
    numbers = np.arange(count)
    require_shares([plan.deal(numbers, n, of, even).tolist() for n in range(of)], count, even)


def numbers_in(ranges: Iterable[plan.Range]) -> list[int]:
    return [number for start, stop in ranges for number in range(start, stop)]


@given(SIZES, PARTS, EVEN)
def test_ranges_are_cut(sizes: list[int], of: int, even: plan.Even) -> None:
    ends = np.cumsum([0, *sizes]).tolist()
    ranges = list(pairwise(ends))
    parts = [numbers_in(plan.cut(ranges, number, of, even)) for number in range(of)]
    require_shares(parts, ends[-1], even)
    assert len(parts[0]) == max(map(len, parts)), "the first is the last to join"


@given(COUNTS, PARTS, EVEN)
def test_a_stream_is_shared_in_rounds(count: int, of: int, even: plan.Even) -> None:
    parts = [list(plan.rounds(iter(range(count)), number, of, even)) for number in range(of)]
    if even == "pad" and count:
        assert {len(part) for part in parts} == {math.ceil(count / of)}
        assert {number for part in parts for number in part} == set(range(count))
    else:
        require_shares(parts, count, even)


@given(SIZES, PARTS, EVEN, st.integers(0, 30))
def test_what_is_left_is_what_no_part_has_used(
    sizes: list[int], of: int, even: plan.Even, used: int
) -> None:
    ends = np.cumsum([0, *sizes]).tolist()
    ranges = list(pairwise(ends))
    taken = {n for k in range(of) for n in numbers_in(plan.cut(ranges, k, of, even))[:used]}
    left = numbers_in(plan.left(ranges, of, even, used))
    assert len(left) == len(set(left))
    if even == "pad":  # what repeats may have been used by who repeats it alone
        assert set(left) | taken == set(range(ends[-1]))
    else:
        assert sorted([*left, *taken]) == list(range(ends[-1]))


@given(COUNTS, PARTS, EVEN, st.booleans(), st.integers(0, 3))
def test_samplers_share_an_epoch(
    count: int, of: int, even: plan.Even, shuffle: bool, epoch: int
) -> None:
    samplers = [ShardSampler(count, even, shuffle, place=(rank, of)) for rank in range(of)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    require_shares([list(sampler) for sampler in samplers], count, even)
    assert [len(sampler) for sampler in samplers] == [len(list(sampler)) for sampler in samplers]


def test_orders_differ_by_epoch_and_seed_and_by_nothing_else() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = ShardSampler(range(100), seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(2) for epoch in range(2)}) == 4
    assert list(ShardSampler(range(4), shuffle=False)) == [0, 1, 2, 3]


@given(st.integers(1, 60), PARTS, PARTS, st.integers(1, 4), st.integers(0, 5))
def test_another_world_goes_on_with_what_is_left(
    count: int, before: int, after: int, batch: int, steps: int
) -> None:
    first = [ShardSampler(count, place=(rank, before)) for rank in range(before)]
    used = [number for each in first for number in list(each)[: steps * batch]]
    for step in range(steps):
        for sampler in first:
            sampler.record_batch(step, batch)
    states = [pickle.dumps(sampler.state_dict()) for sampler in first]
    assert len(set(states)) == 1
    rest = []
    for rank in range(after):
        sampler = ShardSampler(count, place=(rank, after))
        sampler.load_state_dict(pickle.loads(states[0]))
        rest += list(sampler)
    assert set(used) | set(rest) == set(range(count))
    assert not set(used) & set(rest)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ShardSampler(3, even="most"), "even='most': expected 'drop'"),  # type: ignore[arg-type]
        (lambda: ShardSampler(3, place=(2, 2)), r"place=\(2, 2\): expected \(rank, size\)"),
        (lambda: list(equal_steps([], look_ahead=0)), "look_ahead=0"),
        (lambda: list(equal_steps([], even="join")), "even='join'"),  # type: ignore[arg-type]
        (lambda: list(split_by_rank([])), "0 shards cannot feed 1 ranks"),
        (lambda: shard_huggingface(iter("")), "IterableDataset does not know its length"),
    ],
)
def test_what_cannot_be_is_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


class Table:
    """What of a `datasets.Dataset` is used."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, numbers: Iterable[int]) -> Table:
        return Table([self.rows[number] for number in numbers])


@given(COUNTS, PARTS, EVEN)
def test_tables_are_shared_by_rows(count: int, of: int, even: plan.Even) -> None:
    table = Table(list(range(count)))
    parts = [shard_huggingface(table, even, (rank, of)).rows for rank in range(of)]
    require_shares(parts, count, even)


@pytest.mark.parametrize("even", ["drop", "pad"])
@pytest.mark.parametrize("count", [0, 1, 8, 9])
def test_one_process_has_all_batches(count: int, even: str) -> None:
    assert list(equal_steps(iter(range(count)), even)) == list(range(count))  # type: ignore[arg-type]
