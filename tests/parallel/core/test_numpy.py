"""The numpy front end, with exact values."""

from __future__ import annotations

import operator
import random
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.operations.rooted import RootedCollectives
from sirtaki.core.world.state import current_world
from sirtaki.core.world.world import World
from sirtaki.numpy.ops import TENSORS

SIGNED = (np.int8, np.int16, np.int32, np.int64)
INTEGERS = (np.uint8, *SIGNED, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float16, np.float32, np.float64)
COMPLEX = (np.complex64, np.complex128)
SIZES = (0, 1, 10, 1000, 100_003)


def of_rank(rank: int, count: int, dtype: Any) -> np.ndarray:
    """Small whole numbers, so that sums are exact in every dtype."""
    numbers = (np.arange(count) + rank) % 5
    return (numbers * (1 - 2j) if dtype in COMPLEX else numbers).astype(dtype)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + COMPLEX)
def test_a_sum_is_exact(dtype: Any, count: int) -> None:
    result = hvd.allreduce(of_rank(hvd.rank(), count, dtype), op=hvd.Sum)
    expected = sum(of_rank(r, count, dtype) for r in range(hvd.size()))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("op", "combine"),
    [(hvd.Min, np.minimum), (hvd.Max, np.maximum), (hvd.Product, np.multiply)],
)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_min_max_and_product_are_exact(dtype: Any, op: int, combine: Any) -> None:
    result = hvd.allreduce(of_rank(hvd.rank(), 1000, dtype), op=op)
    expected = of_rank(0, 1000, dtype)
    for r in range(1, hvd.size()):
        expected = combine(expected, of_rank(r, 1000, dtype))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_are_multiplied_as_such(dtype: Any) -> None:
    result = hvd.allreduce(of_rank(hvd.rank(), 1000, dtype), op=hvd.Product)
    expected = np.prod([of_rank(r, 1000, dtype) for r in range(hvd.size())], axis=0)
    np.testing.assert_array_equal(result, expected)


def test_bools_are_combined_logically() -> None:
    mine = np.arange(hvd.size()) == hvd.rank()
    np.testing.assert_array_equal(hvd.allreduce(mine, op=hvd.Sum), np.ones(hvd.size(), bool))
    everywhere = hvd.allreduce(mine, op=hvd.Product)
    np.testing.assert_array_equal(everywhere, np.full(hvd.size(), hvd.size() == 1))


def test_the_average_of_integers_is_truncated_toward_zero() -> None:
    values = np.array([7, -7, 3, -3]) if hvd.rank() == 0 else np.zeros(4)
    expected = np.trunc(np.array([7, -7, 3, -3]) * (1.0 / hvd.size())).astype(np.int32)
    np.testing.assert_array_equal(hvd.allreduce(values.astype(np.int32)), expected)
    unsigned = hvd.allreduce(abs(values).astype(np.uint32))
    np.testing.assert_array_equal(unsigned, abs(expected))


def test_integers_are_scaled_in_double_precision_and_truncated() -> None:
    values = np.array([3, -3, 10], np.int32)
    result = hvd.allreduce(values, op=hvd.Sum, prescale_factor=0.5)
    np.testing.assert_array_equal(result, np.array([1, -1, 5]) * hvd.size())
    result = hvd.allreduce(values, op=hvd.Sum, postscale_factor=0.5)
    np.testing.assert_array_equal(result, np.trunc(values * hvd.size() * 0.5))


def test_16_bit_floats_are_rounded_once() -> None:
    # In float16 2048 + 1 is 2048: summing rank by rank in 16 bits would lose every 1.
    value = 2048.0 if hvd.rank() == 0 else 1.0
    result = hvd.allreduce(np.full(3, value, np.float16), op=hvd.Sum)
    np.testing.assert_array_equal(result, np.full(3, 2048.0 + hvd.size() - 1).astype(np.float16))


def test_results_are_bitwise_equal_on_all_ranks_and_from_run_to_run() -> None:
    mine = np.random.default_rng(hvd.rank()).normal(size=70_001).astype(np.float32)
    first = hvd.allreduce(mine, op=hvd.Sum)
    for _ in range(3):
        assert hvd.allreduce(mine, op=hvd.Sum).tobytes() == first.tobytes()
    everyone = hvd.allgather(first[np.newaxis])
    assert all(row.tobytes() == first.tobytes() for row in everyone)


def test_a_sum_in_place_changes_the_array() -> None:
    values = np.ones(10, np.float32)
    assert hvd.allreduce_(values, op=hvd.Sum) is values
    np.testing.assert_array_equal(values, np.full(10, hvd.size(), np.float32))


def test_an_array_that_is_not_contiguous_is_reduced_as_it_reads() -> None:
    values = np.arange(12.0).reshape(3, 4).T
    np.testing.assert_array_equal(hvd.allreduce(values), values)


def test_sums_in_place_return_and_change_the_arrays_they_were_given() -> None:
    one, *several = (np.full(n, hvd.rank() + 1.0) for n in (3, 2, 5000))
    several.append(np.full(4, hvd.rank() + 1))
    handles = (
        hvd.allreduce_async_(one, op=hvd.Sum),
        hvd.grouped_allreduce_async_(several, op=hvd.Sum),
    )
    assert hvd.synchronize(handles[0]) is one
    assert all(map(operator.is_, hvd.synchronize(handles[1]), several))
    total = sum(range(1, hvd.size() + 1))
    for array in (one, *several):
        np.testing.assert_array_equal(array, np.full(array.shape, total))
    assert all(map(operator.is_, hvd.grouped_allreduce_(several, op=hvd.Max), several))
    np.testing.assert_array_equal(several[0], np.full(2, total))


@pytest.mark.parametrize("names", [None, "group"])
def test_a_group_of_several_dtypes_is_one_operation_with_one_handle(names: str | None) -> None:
    arrays = [np.full(n, hvd.rank() + 1).astype(t) for n, t in ((1, "f8"), (0, "f4"), (5000, "i4"))]
    total = sum(range(1, hvd.size() + 1))
    handle = hvd.grouped_allreduce_async(arrays, names, op=hvd.Sum)
    for results in (hvd.synchronize(handle), hvd.grouped_allreduce(arrays, op=hvd.Sum)):
        assert isinstance(results, list)
        for array, result in zip(arrays, results, strict=True):
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, np.full(array.shape, total))


def test_a_group_of_one_array_is_a_list() -> None:
    results = hvd.synchronize(hvd.grouped_allgather_async([np.full((1, 2), hvd.rank())]))
    assert isinstance(results, list)
    assert [result[:, 0].tolist() for result in results] == [list(range(hvd.size()))]


def test_groups_are_gathered_and_scattered_array_by_array() -> None:
    arrays = [np.full((hvd.size(), 2), hvd.rank() + 1.0), np.full(hvd.size(), hvd.rank() + 1)]
    for gathered, array in zip(hvd.grouped_allgather(arrays), arrays, strict=True):
        np.testing.assert_array_equal(gathered, hvd.allgather(array))
    handle = hvd.grouped_reducescatter_async(arrays, op=hvd.Sum)
    for results in (hvd.synchronize(handle), hvd.grouped_reducescatter(arrays, op=hvd.Sum)):
        for result, array in zip(results, arrays, strict=True):
            np.testing.assert_array_equal(result, hvd.reducescatter(array, op=hvd.Sum))


def test_a_broadcast_in_place_overwrites_the_array() -> None:
    for start in (hvd.broadcast_async_, hvd.broadcast_):
        values = np.full(1000, hvd.rank())
        result = start(values, hvd.size() - 1)
        assert (hvd.synchronize(result) if isinstance(result, int) else result) is values
        np.testing.assert_array_equal(values, np.full(1000, hvd.size() - 1))


@pytest.mark.parametrize(
    "call",
    [
        lambda array: hvd.allreduce_async_(array),
        lambda array: hvd.grouped_allreduce_([array]),
        lambda array: hvd.grouped_allreduce_async_([array]),
        lambda array: hvd.broadcast_(array, 0),
        lambda array: hvd.broadcast_async_(array, 0),
    ],
)
def test_what_cannot_be_changed_in_place_is_refused_before_anything_is_sent(call: Any) -> None:
    with pytest.raises(ValueError, match="contiguous and writable"):
        call(np.ones((3, 4)).T)
    with pytest.raises(TypeError, match="expected a numpy array, not list"):
        call([1.0])


def test_objects_are_broadcast_and_gathered() -> None:
    mine = {"rank": hvd.rank(), "rows": [None] * (1000 * hvd.rank())}
    for root in range(hvd.size()):
        found = hvd.broadcast_object(mine if hvd.rank() == root else None, root)
        assert found == {"rank": root, "rows": [None] * (1000 * root)}
    assert [each["rank"] for each in hvd.allgather_object(mine)] == list(range(hvd.size()))


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS, *FLOATS, *COMPLEX])
def test_rows_are_gathered_in_rank_order_however_many_each_has(dtype: Any) -> None:
    rows = [r * 3 % 4 for r in range(hvd.size())]
    parts = [of_rank(r, rows[r] * 2, dtype).reshape(rows[r], 2) for r in range(hvd.size())]
    np.testing.assert_array_equal(hvd.allgather(parts[hvd.rank()]), np.concatenate(parts))


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS, *FLOATS, *COMPLEX])
def test_every_rank_can_broadcast(dtype: Any) -> None:
    for root in range(hvd.size()):
        mine = of_rank(hvd.rank(), 100_003, dtype)
        result = hvd.broadcast(mine, root)
        np.testing.assert_array_equal(result, of_rank(root, 100_003, dtype))


def test_equal_parts_are_exchanged_without_splits() -> None:
    mine = np.arange(hvd.size() * 2) + 100 * hvd.rank()
    expected = [100 * r + 2 * hvd.rank() + i for r in range(hvd.size()) for i in (0, 1)]
    np.testing.assert_array_equal(hvd.alltoall(mine), expected)


def test_splits_say_how_many_rows_go_where_and_come_from_where() -> None:
    splits = [(hvd.rank() + r) % 3 for r in range(hvd.size())]
    mine = np.full((sum(splits) + 1, 2), hvd.rank(), np.int32)  # the last row is not sent
    rows, received = hvd.alltoall(mine, splits)
    expected = [(r + hvd.rank()) % 3 for r in range(hvd.size())]
    np.testing.assert_array_equal(received, expected)
    np.testing.assert_array_equal(rows[:, 0], np.repeat(np.arange(hvd.size()), expected))


@pytest.mark.parametrize("width", [1, 5000])
def test_an_alltoall_may_have_other_splits_each_time_under_one_name(width: int) -> None:
    me, size = hvd.rank(), hvd.size()
    for step in range(6):
        # Rank a sends (a * step + b) % 4 rows to rank b; in the first step the last rank has none.
        rows = [[(a * step + b) % 4 for b in range(size)] for a in range(size)]
        if step == 0:
            rows[-1] = [0] * size
        mine = np.full((sum(rows[me]) + step, width), 100 * me + step, np.float32)
        result, received = hvd.alltoall(mine, rows[me], name="varying")
        assert list(received) == [rows[a][me] for a in range(size)]
        senders = np.repeat(np.arange(size), [rows[a][me] for a in range(size)])
        expected = np.repeat((100 * senders + step)[:, None], width, axis=1)
        np.testing.assert_array_equal(result, expected.reshape(-1, width))


def test_blocks_of_rows_are_scattered_and_the_first_ranks_get_one_more() -> None:
    count = 2 * hvd.size() + 1
    mine = np.arange(count * 3.0).reshape(count, 3) * (hvd.rank() + 1)
    total = np.arange(count * 3.0).reshape(count, 3) * sum(range(1, hvd.size() + 1))
    result = hvd.reducescatter(mine, op=hvd.Sum)
    np.testing.assert_array_equal(result, np.array_split(total, hvd.size())[hvd.rank()])


def test_named_operations_may_be_submitted_in_any_order() -> None:
    order = list(range(50))
    random.Random(hvd.rank()).shuffle(order)
    handles = {
        i: hvd.allreduce_async(np.full(i, i + hvd.rank()), name=f"t{i}", op=hvd.Sum) for i in order
    }
    ranks = sum(range(hvd.size()))
    for i in range(50):
        expected = np.full(i, i * hvd.size() + ranks)
        np.testing.assert_array_equal(hvd.synchronize(handles[i]), expected)


def test_many_operations_in_flight_complete() -> None:
    handles = [hvd.allreduce_async(np.full(3, i), op=hvd.Max) for i in range(2000)]
    assert [int(hvd.synchronize(handle)[0]) for handle in handles] == list(range(2000))


def test_join_contributes_zeros_until_the_last_rank_has_joined() -> None:
    for step in range(hvd.rank() + 1):
        result = hvd.allreduce(np.ones(4), op=hvd.Sum, name=f"uneven.{step}")
        np.testing.assert_array_equal(result, np.full(4, hvd.size() - step))
    last = hvd.join()
    assert 0 <= last < hvd.size()
    assert np.all(hvd.allgather(np.array([last])) == last)


def test_collectives_ask_for_the_world_that_they_were_given() -> None:
    asked = []

    def world() -> World:
        asked.append(None)
        return current_world()

    ops = RootedCollectives(TENSORS, world)
    everyone = hvd.global_process_set
    value, how = np.ones(1), (hvd.Sum, 1.0, 1.0, everyone)
    handles = [
        ops.allreduce_async([value], None, None, how),
        ops.allgather_async([value], None, everyone),
        ops.reducescatter_async([np.ones(hvd.size())], None, how),
        ops.broadcast_async(value, None, 0, None, everyone),
        ops.alltoall_async(np.ones(hvd.size()), None, None, everyone),
        ops.reduce_async(value, 0, None, how),
        ops.gather_async(value, 0, None, everyone),
        ops.scatter_async(np.empty(1), [value] * hvd.size(), 0, None, everyone),
    ]
    for handle in handles:
        ops.synchronize(handle)
    ops.barrier(everyone)
    assert len(asked) == len(handles) + 1
