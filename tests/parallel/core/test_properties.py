"""Each operation against a numpy model, on random shapes, dtypes and process sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sirtaki as hvd
from tests.parallel.core.inputs import IN_STEP, part

in_step = settings(IN_STEP, max_examples=40)
DTYPES = st.sampled_from([np.uint8, np.int16, np.int32, np.int64, np.float32, np.float64])
SHAPES = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


def members(process_set: hvd.ProcessSet) -> list[int]:
    return process_set.ranks or []


@in_step
@given(seed=st.integers(0, 2**30), shape=SHAPES, dtype=DTYPES, which=st.integers(0, 2))
def test_allreduce_sums(
    sets: list[hvd.ProcessSet], seed: int, shape: tuple[int, ...], dtype: Any, which: int
) -> None:
    chosen = sets[which % len(sets)]
    if hvd.rank() in members(chosen):
        mine = part(seed, hvd.rank(), shape, dtype)
        expected = sum(part(seed, r, shape, dtype) for r in members(chosen))
        result = hvd.allreduce(mine, op=hvd.Sum, process_set=chosen)
        np.testing.assert_array_equal(result, np.asarray(expected, dtype))


@in_step
@given(seed=st.integers(0, 2**30), shape=SHAPES, dtype=DTYPES, which=st.integers(0, 2))
def test_allgather_concatenates(
    sets: list[hvd.ProcessSet], seed: int, shape: tuple[int, ...], dtype: Any, which: int
) -> None:
    chosen = sets[which % len(sets)]
    if hvd.rank() in members(chosen):
        parts = {
            r: part(seed, r, ((shape[0] + r * seed) % 5, *shape[1:]), dtype)
            for r in members(chosen)
        }
        result = hvd.allgather(parts[hvd.rank()], process_set=chosen)
        np.testing.assert_array_equal(result, np.concatenate(list(parts.values())))


@in_step
@given(seed=st.integers(0, 2**30), shape=SHAPES, dtype=DTYPES, which=st.integers(0, 2))
def test_broadcast_copies_the_root(
    sets: list[hvd.ProcessSet], seed: int, shape: tuple[int, ...], dtype: Any, which: int
) -> None:
    chosen = sets[which % len(sets)]
    if hvd.rank() in members(chosen):
        root = members(chosen)[seed % len(members(chosen))]
        result = hvd.broadcast(part(seed, hvd.rank(), shape, dtype), root, process_set=chosen)
        np.testing.assert_array_equal(result, part(seed, root, shape, dtype))


@in_step
@given(seed=st.integers(0, 2**30), shape=SHAPES, dtype=DTYPES, which=st.integers(0, 2))
def test_reducescatter_gives_blocks_of_the_sum(
    sets: list[hvd.ProcessSet], seed: int, shape: tuple[int, ...], dtype: Any, which: int
) -> None:
    chosen = sets[which % len(sets)]
    if hvd.rank() in members(chosen):
        total = np.asarray(sum(part(seed, r, shape, dtype) for r in members(chosen)), dtype)
        blocks = np.array_split(total, len(members(chosen)))
        mine = part(seed, hvd.rank(), shape, dtype)
        result = hvd.reducescatter(mine, op=hvd.Sum, process_set=chosen)
        np.testing.assert_array_equal(result, blocks[members(chosen).index(hvd.rank())])


@in_step
@given(seed=st.integers(0, 2**30), dtype=DTYPES, which=st.integers(0, 2))
def test_alltoall_transposes(sets: list[hvd.ProcessSet], seed: int, dtype: Any, which: int) -> None:
    chosen = sets[which % len(sets)]
    if hvd.rank() not in members(chosen):
        return
    count = len(members(chosen))
    rows = np.random.default_rng(seed).integers(0, 4, (count, count))
    me = members(chosen).index(hvd.rank())

    def block(source: int, target: int) -> np.ndarray:
        return part(seed + source * 31 + target, 0, (rows[source, target], 2), dtype)

    mine = np.concatenate([block(me, target) for target in range(count)])
    result, received = hvd.alltoall(mine, rows[me].tolist(), process_set=chosen)
    np.testing.assert_array_equal(received, rows[:, me])
    np.testing.assert_array_equal(result, np.concatenate([block(r, me) for r in range(count)]))


@in_step
@given(seed=st.integers(0, 2**30))
def test_operations_interleave_in_any_order_within_all_sets(
    sets: list[hvd.ProcessSet], seed: int
) -> None:
    own = [(i, s) for i, s in enumerate(sets) if hvd.rank() in members(s)]
    jobs = [(i, s, n) for i, s in own for n in range(6)]
    np.random.default_rng([seed, hvd.rank()]).shuffle(jobs)  # type: ignore[arg-type]
    handles = {
        (i, n): hvd.allreduce_async(
            np.full(n * 100, hvd.rank()), name=f"{i}.{n}", op=hvd.Sum, process_set=s
        )
        for i, s, n in jobs
    }
    for i, s in own:
        for n in range(6):
            expected = np.full(n * 100, sum(members(s)))
            np.testing.assert_array_equal(hvd.synchronize(handles[i, n]), expected)
