"""NumPy arrays in memory that other ranks on the host can map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sirtaki.core.world import shared_arrays


def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return an array in memory shared by all ranks of the host, which they need not copy.

    If the system has no shared memory, or none is left, it uses ordinary memory.

    Args:
        shape: A size, or one for each dimension.
        dtype: The type of the elements; any type without Python objects.

    Raises:
        TypeError: The shape or the dtype is invalid, or the dtype holds Python objects.
        ValueError: A size is negative.
    """
    sizes = shared_arrays.checked_shape(shape)
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"empty() has no memory for Python objects, which {kind} holds")
    block = shared_arrays.block(shared_arrays.bytes_of(sizes, kind.itemsize))
    if block is None:
        return np.empty(sizes, kind)
    array: NDArray[Any] = np.ndarray(sizes, kind, block)
    return array
