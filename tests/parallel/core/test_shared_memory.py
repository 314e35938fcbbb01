"""Operations whose arrays share memory give what one after another would give, or are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import sirtaki as hvd

SIZES = (1, 100, 5000, 300_000)


@pytest.mark.parametrize("size", SIZES)
def test_the_same_array_in_flight_twice_is_reduced_twice(size: int) -> None:
    for _ in range(5):
        array = np.ones(size, np.float32)
        handles = [hvd.allreduce_async_(array, op=hvd.Sum) for _ in range(3)]
        for handle in handles:
            hvd.synchronize(handle)
        assert (array == hvd.size() ** 3).all()


@pytest.mark.parametrize("size", SIZES)
def test_parts_that_overlap_are_reduced_one_after_another(size: int) -> None:
    for _ in range(5):
        array = np.ones(3 * size, np.float64)
        first, second = array[: 2 * size], array[size:]
        handles = [hvd.allreduce_async_(part, op=hvd.Sum) for part in (first, second)]
        for handle in handles:
            hvd.synchronize(handle)
        expected = np.repeat([1, 2, 1], size)
        assert (array == float(hvd.size()) ** expected).all()


@pytest.mark.parametrize("size", SIZES)
def test_what_is_still_read_is_not_written(size: int) -> None:
    for _ in range(5):
        array = np.ones(size, np.float32)
        read = hvd.allreduce_async(array, op=hvd.Sum)
        written = hvd.broadcast_async_(array, 0)
        gathered = hvd.allgather_async(array)
        hvd.synchronize(hvd.allreduce_async_(array, op=hvd.Sum))
        assert (hvd.synchronize(read) == hvd.size()).all()
        assert (hvd.synchronize(written) == hvd.size()).all()
        assert (hvd.synchronize(gathered) == 1).all()
        assert (array == hvd.size()).all()


def test_the_same_input_may_be_read_many_times() -> None:
    array = np.full(1000, hvd.rank(), np.float32)
    total = sum(range(hvd.size()))
    assert all((each == total).all() for each in hvd.grouped_allreduce([array] * 3, op=hvd.Sum))
    handles = [hvd.allreduce_async(array[i:], op=hvd.Sum) for i in range(10)]
    assert all((hvd.synchronize(handle) == total).all() for handle in handles)


@pytest.mark.parametrize(
    "parts",
    [lambda x: [x, x], lambda x: [x[:6], x[5:]], lambda x: [x[8:], x[:2], x[1:4]]],
    ids=("the same", "overlapping", "in any order"),
)
def test_a_group_that_would_write_memory_twice_is_refused(
    parts: Callable[[np.ndarray], list[np.ndarray]],
) -> None:
    array = np.full(10, hvd.rank(), np.float32)
    with pytest.raises(ValueError, match=r"tensors \d and \d of the group.* share memory"):
        hvd.grouped_allreduce_(parts(array))
    assert (array == hvd.rank()).all()
    hvd.grouped_allreduce_([array[5:], array[:5]], op=hvd.Max)
    assert (array == hvd.size() - 1).all()


def test_a_scatter_into_what_it_sends_is_refused_but_for_the_roots_own_part() -> None:
    array = np.arange(hvd.size() + 1, dtype=np.float32)
    parts = [array[i : i + 1] for i in range(hvd.size())]
    got = hvd.scatter(parts[hvd.rank()], parts, 0)
    assert got[0] == hvd.rank()
    if hvd.rank() == 0 and hvd.size() > 1:
        with pytest.raises(ValueError, match="input 1 and output 0 share memory"):
            hvd.scatter(parts[1], parts, 0)
