"""Reducescatter of arrays and groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from sirtaki.core.operations import codes
from sirtaki.core.operations.compression import Compressor, compress_all, decompress_all
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import Reduction, check_op, check_scattered
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.arrays import (
    Compression,
    by_dtype,
    check_reducible,
    collectives,
    from_host,
    to_host,
)
from sirtaki.jax.calls import block, checked_name, members, position, traced
from sirtaki.jax.gradients import traced_reducescatter
from sirtaki.jax.primitive import TracedOperation


def reducescatter(
    x: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> jax.Array:
    """Reduce an array over all ranks and return this rank's block of rows.

    The gradient is gathered from all ranks, scaled like the array, and with Sum also by the number
    of ranks.

    Args:
        x: At least one dimension; of the same shape and dtype on all ranks. If the rows do not
            divide evenly, the first ranks get one extra row.
        op: Average (the default), Sum, Min, Max or Product.
        name, prescale_factor, postscale_factor: As for `allreduce`.
        process_set, compression: As for `allreduce`.

    Returns:
        This rank's rows, of the same dtype.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    [result] = grouped_reducescatter(
        [x], op, name, prescale_factor, postscale_factor, process_set, compression
    )
    return result


def grouped_reducescatter(
    xs: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> list[jax.Array]:
    """Reduce and scatter several arrays as one operation for each dtype.

    Args:
        xs: At least one array; each as for `reducescatter`.
        op, name, prescale_factor, postscale_factor: As for `allreduce`.
        process_set, compression: As for `allreduce`.

    Returns:
        This rank's rows of each array, in the same order.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    arrays = [check_reducible("reducescatter", x, op) for x in xs]
    compressed, contexts = compress_all(codes.NO_CODEC, compression, arrays)
    if not all(array.ndim for array in compressed):
        raise ValueError("reducescatter needs rows, but got an array of no dimensions")
    check_op(op)
    check_scattered(op)
    ranks = members(process_set)

    def scatter(part: list[jax.Array], part_name: str | None) -> Any:
        if not traced(part):
            reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
            handle = collectives.reducescatter_async(
                to_host(part), part_name, reduction, waits=True
            )
            return from_host(collectives.synchronize(handle), part)
        rows = tuple(array.shape[0] for array in part)
        operation = TracedOperation(
            codes.REDUCESCATTER,
            "reducescatter",
            checked_name(part_name),
            number_of(process_set),
            reduce=int(op),
            prescale=float(prescale_factor),
            postscale=float(postscale_factor),
            rows=tuple(block(count, ranks, position(process_set)) for count in rows),
        )
        return traced_reducescatter(operation, ranks, rows, part)

    return decompress_all(compression, by_dtype(compressed, name, scatter), contexts)
