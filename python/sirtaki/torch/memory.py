"""Tensors in memory that the other ranks of the host can map."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.core.world import shared_heap


def empty(*size: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a CPU tensor in the shared heap, where collectives on the host do not copy it.

    If there is no shared heap, or it is full, the memory is ordinary memory.

    Args:
        size: Of each dimension, as several arguments or as one sequence.
        dtype: Of the elements; default that of ``torch.empty``.

    Raises:
        TypeError: The size is none, or the dtype is no ``torch.dtype``.
        ValueError: A size is negative.
    """
    one = size[0] if len(size) == 1 else size
    sizes = shared_heap.checked_shape(one)  # type: ignore[arg-type]
    kind = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"dtype={kind!r} is not a torch.dtype")
    block = shared_heap.block(shared_heap.bytes_of(sizes, kind.itemsize))
    if block is None:
        return torch.empty(sizes, dtype=kind)
    return torch.frombuffer(block, dtype=kind).view(sizes)
