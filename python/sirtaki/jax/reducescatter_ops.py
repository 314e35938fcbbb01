"""Reducescatter of arrays and groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from sirtaki.core.operations import kinds
from sirtaki.core.operations.reduce_ops import Adasum, Average
from sirtaki.core.operations.reduction import Reduction, check_op
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.arrays import by_dtype, check_reducible, collectives, from_host, to_host
from sirtaki.jax.calls import block, checked_name, members, position, traced
from sirtaki.jax.compression import Compression, Compressor
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

    If the rows do not divide evenly, the first ranks get one more. `op` is any except Adasum. The
    gradient is gathered from all ranks, scaled as the array was, and by the number of ranks with
    Sum. Arguments and errors as `allreduce`.
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
    """Reduce and scatter several arrays as one operation for each dtype; as `reducescatter`."""
    compressed, contexts = [], []
    for x in xs:
        array, context = compression.compress(check_reducible("reducescatter", x, op))
        if not array.ndim:
            raise ValueError("reducescatter needs rows, but got an array of no dimensions")
        compressed.append(array)
        contexts.append(context)
    check_op(op)
    if op == Adasum:
        raise ValueError("reducescatter takes every reduction but Adasum")
    ranks = members(process_set)
    results: list[Any] = [None] * len(compressed)
    for indices, part_name in by_dtype(compressed, name):
        part = [compressed[i] for i in indices]
        if traced(part):
            rows = tuple(array.shape[0] for array in part)
            operation = TracedOperation(
                kinds.REDUCESCATTER,
                "reducescatter",
                checked_name(part_name),
                number_of(process_set),
                reduce=int(op),
                prescale=float(prescale_factor),
                postscale=float(postscale_factor),
                rows=tuple(block(count, ranks, position(process_set)) for count in rows),
            )
            blocks = traced_reducescatter(operation, ranks, rows, part)
        else:
            handle = collectives.reducescatter_async(
                to_host(part),
                part_name,
                Reduction(op, prescale_factor, postscale_factor, process_set),
                waits=True,
            )
            blocks = from_host(collectives.synchronize(handle))
        for i, own in zip(indices, blocks, strict=True):
            results[i] = own
    return [compression.decompress(*pair) for pair in zip(results, contexts, strict=True)]
