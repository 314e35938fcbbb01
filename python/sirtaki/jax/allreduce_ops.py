"""Allreduce of arrays, groups of them and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from sirtaki.core.operations import codes
from sirtaki.core.operations.compression import Compressor, codec_of, compress_all, decompress_all
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import Reduction, check_op
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.arrays import (
    Compression,
    by_dtype,
    check_reducible,
    collectives,
    from_host,
    is_sparse,
    to_host,
)
from sirtaki.jax.calls import checked_name, require_member, traced
from sirtaki.jax.gradients import traced_allreduce
from sirtaki.jax.primitive import TracedOperation

Tree = TypeVar("Tree")


def allreduce(
    x: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> jax.Array:
    """Reduce an array over all ranks.

    Its gradient is the same operation on the gradient.

    Args:
        x: Any shape, equal on all ranks; a number is an array without dimensions.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        name: Matches the call with those of the other ranks. By default, calls match by order; in a
            jitted function, by its name and their position in it.
        prescale_factor: Multiplies every rank's array before the reduction.
        postscale_factor: Multiplies the result.
        process_set: The ranks that take part.
        compression: Form of the array on the wire, from `Compression`.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' calls disagree.
        HorovodInternalError: There is no world, or a rank was lost. A jitted function raises
            `jax.errors.JaxRuntimeError` with the same text for both.
    """
    [result] = grouped_allreduce(
        [x], op, name, prescale_factor, postscale_factor, process_set, compression
    )
    return result


def grouped_allreduce(
    xs: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> list[jax.Array]:
    """Reduce several arrays as one operation for each dtype.

    Args:
        xs: At least one array; each as for `allreduce`.
        op, name, prescale_factor, postscale_factor: As for `allreduce`.
        process_set, compression: As for `allreduce`.

    Returns:
        The reduced arrays, in the same order.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    codec = codec_of(compression, op)
    arrays = [check_reducible("allreduce", x, op) for x in xs]
    compressed, contexts = compress_all(codec, compression, arrays)
    operation = _operation(op, name, prescale_factor, postscale_factor, process_set)

    def reduce(part: list[jax.Array], part_name: str | None) -> Any:
        part_codec = codec if part[0].dtype == jnp.float32 else codes.NO_CODEC
        if traced(part):
            return traced_allreduce(operation(part_name, part_codec), part)
        handle = collectives.allreduce_async(
            to_host(part),
            None,
            part_name,
            Reduction(op, prescale_factor, postscale_factor, process_set),
            waits=True,
            codec=part_codec,
        )
        return from_host(collectives.synchronize(handle), part)

    return decompress_all(compression, by_dtype(compressed, name, reduce), contexts)


def allreduce_tree(
    tree: Tree,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> Tree:
    """Reduce all leaves of a pytree as one operation for each dtype.

    Args:
        tree: The same structure on all ranks; each leaf as for `allreduce`.
        op, name, prescale_factor, postscale_factor: As for `allreduce`.
        process_set, compression: As for `allreduce`.

    Returns:
        A pytree of the same structure with the reduced leaves.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    # A sparse array is also a tree; as a leaf it is refused by name.
    leaves, structure = jax.tree.flatten(tree, is_leaf=is_sparse)
    reduced = grouped_allreduce(
        leaves, op, name, prescale_factor, postscale_factor, process_set, compression
    )
    result: Tree = jax.tree.unflatten(structure, reduced)
    return result


def _operation(
    op: int, name: str | None, prescale: float, postscale: float, process_set: ProcessSet
) -> Any:
    """Return a factory of operations, given a name and a codec; ValueError for bad arguments."""
    check_op(op)
    require_member(process_set)
    return lambda part_name, codec: TracedOperation(
        codes.ALLREDUCE,
        "allreduce",
        checked_name(part_name),
        number_of(process_set),
        reduce=int(op),
        prescale=float(prescale),
        postscale=float(postscale),
        codec=codec,
    )
