"""Averages of integers are those of Python's, whose sums never wrap around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd

TYPES = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64)
SIZES = (1, 40, 5000, 300_000)

WAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "allreduce": hvd.allreduce,
    "in place": lambda array: hvd.allreduce_(array.copy()),
    "in flight": lambda array: hvd.synchronize(hvd.allreduce_async(array)),
    "in a group": lambda array: hvd.grouped_allreduce([array[:1], array])[1],
    "to all by way of a root": lambda array: hvd.broadcast(_reduced(array), 0),
    "scattered": lambda array: hvd.allgather(hvd.reducescatter(array)),
}


def _reduced(array: np.ndarray) -> np.ndarray:
    reduced = hvd.reduce(array, 0)
    return np.zeros_like(array) if reduced is None else reduced


def of_rank(rank: int, dtype: Any, size: int) -> np.ndarray:
    """Equal extremes, and then any numbers near the ends of the type."""
    range_ = np.iinfo(dtype)
    numbers = np.random.default_rng(rank).integers(
        range_.min, range_.max, 997, dtype, endpoint=True
    )
    numbers[:4] = (range_.max, range_.min, range_.max - 1, range_.max // 3)
    return np.resize(numbers, size)


def average_of_all(dtype: Any, size: int) -> np.ndarray:
    columns = zip(*(of_rank(r, dtype, min(size, 997)) for r in range(hvd.size())), strict=True)
    averages = []
    for column in columns:
        total = sum(int(number) for number in column)
        average = abs(total) // hvd.size()
        averages.append(average if total >= 0 else -average)
    return np.resize(np.array(averages, dtype), size)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", WAYS)
def test_averages_of_integers_are_exact(way: str, dtype: Any) -> None:
    for size in SIZES:
        found = WAYS[way](of_rank(hvd.rank(), dtype, size))
        np.testing.assert_array_equal(found, average_of_all(dtype, size))


@pytest.mark.parametrize("dtype", TYPES)
def test_factors_of_an_average_do_not_wrap_around_either(dtype: Any) -> None:
    most = np.iinfo(dtype).max
    if most > 2**62:
        most = 2**61 + 3  # products are clamped to 64 bits
    array = np.full(100, most, dtype)
    assert (hvd.allreduce(array, prescale_factor=2.0, postscale_factor=0.5) == most).all()
