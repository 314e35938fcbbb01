"""Collectives on NumPy arrays whose result or input is on one rank, the root."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.rooted import RootedCollectives
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.numpy.arrays import TENSORS, Array

_ops: RootedCollectives[Array] = RootedCollectives(TENSORS)


def reduce_async(
    array: Array,
    root_rank: int,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `reduce`; return its handle."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _ops.reduce_async(array, root_rank, name, reduction)


def reduce(
    array: Array,
    root_rank: int,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array | None:
    """Reduce an array over all ranks to the root.

    Args:
        array: Any shape, equal on all ranks; the types of `allreduce`.
        root_rank: A rank of the world, also within a set.
        name: As for `allreduce`.
        op: Average, Sum, Min, Max or Product.
        prescale_factor: As for `allreduce`.
        postscale_factor: As for `allreduce`.
        process_set: As for `allreduce`.

    Returns:
        A new array at the root, None elsewhere.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' calls disagree.
        HorovodInternalError: No world, or the operation failed.
    """
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _result(_ops.reduce_async(array, root_rank, name, reduction, waits=True))


def gather_async(
    array: Array,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `gather`; return its handle."""
    return _ops.gather_async(array, root_rank, name, process_set)


def gather(
    array: Array,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array | None:
    """Concatenate all ranks' arrays along the first dimension, in rank order, at the root.

    The first dimension may differ between ranks and be zero; a scalar is an error on all ranks.
    Arguments, result and errors as `reduce`.
    """
    handle = _ops.gather_async(array, root_rank, name, process_set, waits=True)
    return _result(handle)


def scatter_async(
    array: Array,
    arrays: Sequence[Array] | None,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `scatter`; return its handle."""
    return _ops.scatter_async(_writable(array), arrays, root_rank, name, process_set)


def scatter(
    array: Array,
    arrays: Sequence[Array] | None,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Give each rank one of the root's arrays.

    Args:
        array: The array to fill: contiguous, writable, and of the same shape and dtype on all
            ranks.
        arrays: At the root, one array for each member of the set, like `array`; ignored on other
            ranks.
        root_rank: As for `reduce`.
        name: As for `reduce`.
        process_set: As for `reduce`.

    Returns:
        `array`.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' calls disagree.
        HorovodInternalError: No world, or the operation failed.
    """
    handle = _ops.scatter_async(_writable(array), arrays, root_rank, name, process_set, waits=True)
    result = _result(handle)
    assert result is not None
    return result


def _result(handle: int) -> Array | None:
    result: Array | None = _ops.synchronize(handle)[0]
    return result


def _writable(array: Array) -> Array:
    if isinstance(array, np.ndarray) and not array.flags.carray:
        raise ValueError("an array that is scattered into must be contiguous and writable")
    return array
