"""Sums in fixed point equal those of integers of unlimited size, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.core.operations import fixed_point
from sirtaki.core.operations.codes import BF16, F16, F32, F64

# Of a format: the bits of its significand, the exponent of its smallest number, its infinity.
FORMATS = {F32: (24, -149, 0x7F800000), BF16: (8, -133, 0x7F80), F16: (11, -24, 0x7C00)}
WORDS = {F32: np.uint32, BF16: np.uint16, F16: np.uint16}

Bits = st.integers(0, 2**32 - 1)


def value_of(bits: int, dtype: int) -> float:
    """The number with these bits; infinities and NaN as they are."""
    if dtype == F16:
        return float(np.array([bits], np.uint16).view(np.float16)[0])
    word = bits << 16 if dtype == BF16 else bits
    return float(np.array([word], np.uint32).view(np.float32)[0])


def to_nearest(value: Fraction) -> int:
    """The nearest integer, ties to even."""
    return round(value)


def rounded(value: Fraction, dtype: int) -> int:
    """The bits of the nearest number of a format, ties to even."""
    precision, least, infinity = FORMATS[dtype]
    sign, size = (1 << (31 if dtype == F32 else 15) if value < 0 else 0), abs(value)
    if size == 0:
        return 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= int(size < Fraction(2) ** exponent)
    last = max(exponent - precision + 1, least)
    kept = to_nearest(size / Fraction(2) ** last)
    return sign | min(((last - least) << (precision - 1)) + kept, infinity)


def add(sums: np.ndarray, values: np.ndarray, dtype: int, exponent: int, mode: int) -> object:
    return fixed_point.add_fixed(
        sums.ctypes.data, values.ctypes.data, dtype, len(values), exponent, mode
    )


@pytest.mark.parametrize("dtype", FORMATS, ids=["float32", "bfloat16", "float16"])
@given(data=st.data(), exponent=st.integers(-60, 149), count=st.integers(1, 70))
def test_each_number_is_rounded_once_and_added(
    dtype: int, data: st.DataObject, exponent: int, count: int
) -> None:
    limit = Fraction(2) ** (61 - exponent)
    mask = 0xFFFFFFFF if dtype == F32 else 0xFFFF
    bits = [data.draw(Bits) & mask for _ in range(count)]
    numbers = [value_of(each, dtype) for each in bits]
    kept = [
        0.0 if not math.isfinite(number) or abs(Fraction(number)) >= limit else number
        for number in numbers
    ]
    bits = [
        0 if k != n and math.isfinite(n) else b for b, k, n in zip(bits, kept, numbers, strict=True)
    ]
    given_values = np.array(bits, WORDS[dtype])
    sums = np.arange(count, dtype=np.int64) * 7 - 40
    wanted = [
        int(s) + to_nearest(Fraction(k) * Fraction(2) ** exponent)
        for s, k in zip(sums, kept, strict=True)
    ]
    largest, special = add(sums, given_values, dtype, exponent, fixed_point.ADD)  # type: ignore[misc]
    assert sums.tolist() == wanted
    assert special == any(not math.isfinite(value_of(b, dtype)) for b in bits)
    assert value_of(largest, F32) == max(map(abs, kept))


@pytest.mark.parametrize("dtype", FORMATS, ids=["float32", "bfloat16", "float16"])
@given(
    sums=st.lists(
        st.one_of(
            st.integers(-(2**61), 2**61),
            st.integers(-(2**25), 2**25),
            # Many of them are halfway between two numbers.
            st.builds(
                lambda m, shift: m << shift, st.integers(-(2**26), 2**26), st.integers(0, 34)
            ),
        ),
        min_size=1,
        max_size=140,
    ),
    exponent=st.integers(-91, 149),
    divisor=st.one_of(st.integers(1, 40), st.integers(1, 2**28 - 1), st.integers(1, 2**31 - 1)),
)
def test_the_sum_is_rounded_once(dtype: int, sums: list[int], exponent: int, divisor: int) -> None:
    integers = np.array(sums, np.int64)
    found = np.empty(len(sums), WORDS[dtype])
    fixed_point.round_fixed(
        found.ctypes.data, integers.ctypes.data, dtype, len(sums), exponent, divisor
    )
    unit = Fraction(1, divisor) / Fraction(2) ** exponent
    wanted = [rounded(each * unit, dtype) for each in sums]
    assert found.tolist() == wanted


@given(largest=st.integers(1, 0x7F7FFFFF), terms=st.integers(1, 4096))
def test_an_exponent_leaves_twelve_doublings(largest: int, terms: int) -> None:
    exponent = fixed_point.exponent_for(largest, terms)
    magnitude = Fraction(value_of(largest, F32))
    assert terms * magnitude * 2**12 * Fraction(2) ** exponent <= 2**61
    assert fixed_point.fits(largest, exponent, terms)
    assert exponent == 149 or not fixed_point.fits(largest, exponent - 21, terms)
    assert exponent == 149 or terms * magnitude * 2**15 * Fraction(2) ** exponent > 2**61


@given(largest=st.integers(1, 0x7F7FFFFF), exponent=st.integers(-91, 149))
def test_what_fits_does_not_overflow(largest: int, exponent: int) -> None:
    if fixed_point.fits(largest, exponent, 12):
        assert 12 * Fraction(value_of(largest, F32)) * Fraction(2) ** exponent < 2**61


def test_denormal_numbers_count_whatever_mode_a_thread_has() -> None:
    values = np.full(300, 1, np.uint32)  # the smallest float32
    sums, rounded_sums = np.zeros(300, np.int64), np.empty(300, np.uint32)
    torch.set_flush_denormal(True)
    try:
        for _ in range(3):
            add(sums, values, F32, 149, fixed_point.ADD)
        fixed_point.round_fixed(rounded_sums.ctypes.data, sums.ctypes.data, F32, len(sums), 149, 1)
    finally:
        torch.set_flush_denormal(False)
    assert sums.tolist() == [3] * 300
    assert rounded_sums.tolist() == [3] * 300


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="there are no exact sums of float64"):
        add(np.zeros(1, np.int64), np.zeros(1), F64, 0, fixed_point.ADD)
