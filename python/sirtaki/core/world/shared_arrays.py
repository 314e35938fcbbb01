"""Arrays in memory that other ranks on the host can map."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any


def block(bytes: int) -> Any:
    """Return shared memory of this size, as an array that frees it.

    None: the size is zero, or there is no shared memory or no room in it.
    """
    from sirtaki import _core

    return _core.heap_allocate(bytes) if bytes else None


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an array as a tuple.

    Raises:
        TypeError: It is neither a whole number nor a sequence of them.
        ValueError: One of them is negative.
    """
    try:
        sizes = (index(shape),) if not isinstance(shape, Sequence) else tuple(map(index, shape))
    except TypeError:
        raise TypeError(f"a shape is a whole number or several, not {shape!r}") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"the shape {sizes} has a negative size")
    return sizes


def bytes_of(shape: tuple[int, ...], each: int) -> int:
    """Return the bytes of an array with `each` bytes per element."""
    return prod(shape) * each
