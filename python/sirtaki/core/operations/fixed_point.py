"""Sums in fixed point, which do not depend on the order of their terms; cpp/math/fixed_point.h."""

from __future__ import annotations

import math
from typing import Final

from sirtaki._core import add_fixed, round_fixed

__all__ = [
    "ADD",
    "FLOAT16_EXPONENT",
    "MEASURE",
    "SET",
    "add_fixed",
    "exponent_for",
    "fits",
    "round_fixed",
]

# What `add_fixed` does with the sums.
MEASURE: Final = 0
SET: Final = 1
ADD: Final = 2

# With this exponent every float16 is an integer.
FLOAT16_EXPONENT: Final = 24
_BITS = 61
_MOST_EXPONENT = 149
# How many doublings a magnitude may grow from one step to the next.
_MARGIN = 12
# How many it may shrink: its sum then still has 26 bits and more.
_SHRINKAGE = 20
_INFINITY = 0x7F800000


def exponent_for(largest: int, terms: int) -> int:
    """Return the exponent with which `terms` numbers can be added with room to spare.

    Args:
        largest: The bits of the largest magnitude, as a float32; not 0.
        terms: How many are added.
    """
    above = max(largest >> 23, 1) - 126  # the magnitude is below 2**above
    return min(_MOST_EXPONENT, _room(terms) - _MARGIN - above)


def fits(largest: int, exponent: int, terms: int) -> bool:
    """Return whether a sum of this many numbers fits, and is as precise as that of their format.

    Args:
        largest: The bits of the largest magnitude, as a float32; not 0.
        exponent: That of `add_fixed`.
        terms: How many are added.
    """
    above = _room(terms) - exponent
    limit = _INFINITY if above > 127 else (above + 127) << 23
    return largest < limit and exponent_for(largest, terms) - exponent <= _SHRINKAGE


def _room(terms: int) -> int:
    """Return the bits of one of so many terms whose sum fits."""
    return _BITS - math.ceil(math.log2(terms))
