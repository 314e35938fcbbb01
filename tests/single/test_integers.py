"""Averages and factors of integers, held to the integers of Python."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from sirtaki import _core
from sirtaki.core.operations import codes
from sirtaki.core.operations.reduce_ops import Average, Max, Sum

TYPES = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
RANKS = range(1, 65)
FACTORS = (0.0, -0.0, 0.5, 2.0, 3.0, -1.0, 2.0**-40, 1 / 3, 1e300, -1e300)


def extremes(name: str) -> list[int]:
    """Every value next to where a type, or float64, ends."""
    range_ = np.iinfo(name)
    near = [int(range_.min), int(range_.max), 0, 100, 2**53, -(2**53), 2**60 + 1, -(2**60) - 1]
    return [x + d for x in near for d in (-1, 0, 1) if range_.min <= x + d <= range_.max]


def reduced(
    name: str, op: int, sources: list[list[int]], pre: float = 1.0, post: float = 1.0
) -> list[int]:
    """Reduce as many sources as a job has ranks."""
    arrays = [np.array(source, name) for source in sources]
    result = np.empty_like(arrays[0])
    places = [array.ctypes.data for array in arrays]
    code = codes.DTYPES[name]
    _core.reduce(result.ctypes.data, places, code, op, result.size, pre, post)
    return [int(x) for x in result]


def truncated(dividend: int, divisor: int) -> int:
    size = abs(dividend) // divisor
    return -size if dividend < 0 else size


def product(value: int, factor: float) -> int:
    """That of float64 as long as all integers are float64, and the exact one beyond."""
    near = float(value) * factor
    if abs(value) <= 2**53 and abs(near) < 2**53:
        return int(near)
    exact = Fraction(value) * Fraction(factor)
    return truncated(exact.numerator, exact.denominator)


def clamped(value: int, name: str) -> int:
    range_ = np.iinfo(name)
    return min(max(value, int(range_.min)), int(range_.max))


@pytest.mark.parametrize("name", TYPES)
def test_averages_are_exact_for_any_number_of_ranks(name: str) -> None:
    draw = random.Random(name)
    values = extremes(name)
    for ranks in RANKS:
        sources = [[value] * ranks for value in values]
        sources += [[draw.choice(values) for _ in range(ranks)] for _ in range(50)]
        by_rank = [list(column) for column in zip(*sources, strict=True)]
        expected = [truncated(sum(each), ranks) for each in sources]
        assert reduced(name, Average, by_rank) == expected, ranks


@pytest.mark.parametrize("factors", [(f, 1.0) for f in FACTORS] + [(1.0, f) for f in FACTORS])
@pytest.mark.parametrize("name", TYPES)
def test_averages_are_scaled_in_a_type_that_holds_their_sum(
    name: str, factors: tuple[float, float]
) -> None:
    pre, post = factors
    within = "uint64" if name == "uint64" else "int64"
    draw = random.Random(name)
    for ranks in (1, 2, 3, 49, 64):
        sources = [[draw.choice(extremes(name)) for _ in range(ranks)] for _ in range(20)]
        by_rank = [list(column) for column in zip(*sources, strict=True)]
        expected = []
        for each in sources:
            total = sum(clamped(product(x, pre), within) for x in each)
            expected.append(clamped(truncated(product(total, post), ranks), name))
        assert reduced(name, Average, by_rank, pre, post) == expected, ranks


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", TYPES)
def test_factors_are_exact_where_float64_is_not(name: str, factor: float) -> None:
    values = extremes(name)
    expected = [clamped(product(x, factor), name) for x in values]
    assert reduced(name, Sum, [values], factor) == expected
    assert reduced(name, Max, [values], 1.0, factor) == expected


@pytest.mark.parametrize("name", TYPES)
def test_a_factor_that_is_no_number_gives_zero_and_an_infinite_one_the_limits(name: str) -> None:
    range_ = np.iinfo(name)
    assert reduced(name, Average, [[7]], float("nan")) == [0]
    assert reduced(name, Average, [[7]], 1.0, float("inf")) == [int(range_.max)]
    assert reduced(name, Sum, [[7]], float("-inf")) == [int(range_.min)]


def test_results_may_replace_what_they_are_made_of() -> None:
    arrays = [np.full(1000, value, np.uint8) for value in (255, 254, 0)]
    places = [array.ctypes.data for array in arrays]
    _core.reduce(places[1], places, codes.U8, Average, 1000)
    assert (arrays[1] == 169).all()
