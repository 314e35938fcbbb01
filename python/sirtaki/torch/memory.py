"""Tensors in memory that other ranks on the host can map."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.core.world import shared_arrays


def empty(*size: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a CPU tensor in memory shared by all ranks of the host, which they need not copy.

    If the system has no shared memory, or none is left, it uses ordinary memory.

    Args:
        size: The size of each dimension, as several arguments or one sequence.
        dtype: The type of the elements; default: that of ``torch.empty``.

    Raises:
        TypeError: The size or the dtype is invalid.
        ValueError: A size is negative.
    """
    one = size[0] if len(size) == 1 else size
    sizes = shared_arrays.checked_shape(one)  # type: ignore[arg-type]
    kind = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"dtype={kind!r} is not a torch.dtype")
    block = shared_arrays.block(shared_arrays.bytes_of(sizes, kind.itemsize))
    if block is None:
        return torch.empty(sizes, dtype=kind)
    return torch.frombuffer(block, dtype=kind).view(sizes)
