"""NumPy arrays in memory that the other ranks of the host can map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sirtaki.core.world import shared_heap


def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return an array in the shared heap, where collectives on the host do not copy it.

    If there is no shared heap, or it is full, the memory is ordinary memory.

    Args:
        shape: A size, or one for each dimension.
        dtype: Of the elements; any but those that hold Python objects.

    Raises:
        TypeError: The shape or the dtype is none, or the dtype holds Python objects.
        ValueError: A size is negative.
    """
    sizes = shared_heap.checked_shape(shape)
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"empty() has no memory for Python objects, which {kind} holds")
    block = shared_heap.block(shared_heap.bytes_of(sizes, kind.itemsize))
    if block is None:
        return np.empty(sizes, kind)
    array: NDArray[Any] = np.ndarray(sizes, kind, block)
    return array
