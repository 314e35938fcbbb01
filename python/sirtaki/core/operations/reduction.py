"""How tensors are combined, and how users specify it."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from sirtaki.core.errors import UnsupportedError
from sirtaki.core.operations import codes
from sirtaki.core.operations.reduce_ops import NAMES, Adasum, Average, Max, Min, Sum
from sirtaki.core.world.participants import number_of, process_set_of
from sirtaki.core.world.process_sets import ProcessSet

# A `Reduction` as a plain tuple, which is faster to make.
Combination = tuple[int, float, float, ProcessSet]


class Reduction(NamedTuple):
    """How tensors are combined: the operator, the scales before and after it, and the ranks."""

    op: int
    prescale_factor: float
    postscale_factor: float
    process_set: ProcessSet

    # A method, as the compiler of PyTorch 2.4 knows no properties of named tuples.
    def numbers(self) -> tuple[int, float, float, int]:
        """Return the same with the process set's number."""
        scales = float(self.prescale_factor), float(self.postscale_factor)
        return self.op, *scales, number_of(self.process_set)

    @staticmethod
    def from_numbers(
        op: int, prescale_factor: float, postscale_factor: float, process_set: int
    ) -> Reduction:
        """Return the reduction with these `numbers`."""
        return Reduction(op, prescale_factor, postscale_factor, process_set_of(process_set))


def check_predivide(factor: float, op: int) -> None:
    """Raise ValueError for a `gradient_predivide_factor` without Average."""
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


def predivided(op: int, factor: float, process_set: ProcessSet) -> Reduction:
    """Return the reduction of gradients that are divided by `factor` before the sum.

    Raises:
        ValueError: As for `check_predivide`.
    """
    check_predivide(factor, op)
    return Reduction(op, 1.0 / factor, factor, process_set)


def check_op(op: int) -> None:
    """Raise ValueError for an invalid reduction."""
    if op not in NAMES:
        raise ValueError(f"op={op!r} is not a reduction; use one of {', '.join(NAMES.values())}")


def check_scattered(op: int) -> None:
    """Raise UnsupportedError for a reduction that reducescatter does not have."""
    if op == Adasum:
        raise UnsupportedError("reducescatter takes every reduction but Adasum")


def check_reduction(op: int, dtype: int) -> None:
    """Raise ValueError for an invalid reduction, or one that is undefined for an element type."""
    if (op, dtype) in _MEANINGFUL:
        return
    check_op(op)
    name = codes.DTYPE_NAMES[dtype]
    if dtype not in codes.REDUCED_DTYPES.values():
        raise ValueError(
            f"tensors of type {name} cannot be reduced; broadcast, allgather and alltoall take them"
        )
    needs = "floating point numbers" if op == Adasum else "numbers that have an order"
    raise ValueError(f"op={NAMES[op]} needs {needs}, not {name}")


def _has_meaning(op: int, dtype: int) -> bool:
    if op == Adasum:
        return dtype in codes.FLOATING
    return op not in (Min, Max) or dtype not in codes.COMPLEX


_MEANINGFUL = frozenset(
    (op, dtype)
    for op in NAMES
    for dtype in codes.REDUCED_DTYPES.values()
    if _has_meaning(op, dtype)
)


def resolve_op(op: int | None, average: bool | None) -> int:
    """Return the operator meant by `op` and the deprecated `average`; the default is Average."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("give either op or average, not both; average is deprecated")
    warnings.warn(
        "average is deprecated, use op=Average or op=Sum", DeprecationWarning, stacklevel=3
    )
    return Average if average else Sum
