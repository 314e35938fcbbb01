"""Allreduce of arrays, groups of them and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from sirtaki.core.operations import codecs, kinds
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import Reduction, check_op
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.arrays import by_dtype, check_reducible, collectives, from_host, to_host
from sirtaki.jax.calls import checked_name, members, traced
from sirtaki.jax.compression import Compression, Compressor, codec_of, compress_for
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
        x: Any shape, equal on all ranks; a number stands for an array of no dimensions.
        op: Average, Sum, Adasum, Min, Max or Product.
        name: Matches the call with those of the other ranks. By default, the order of calls does,
            and in a jitted function its name and the place in it.
        prescale_factor: Multiplies every rank's array before.
        postscale_factor: Multiplies the result.
        process_set: The ranks that take part.
        compression: Form of the array on the wire, from `Compression`.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' calls do not agree.
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
    """Reduce several arrays as one operation for each dtype; as `allreduce` otherwise."""
    codec = codec_of(compression, op)
    compressed, contexts = [], []
    for x in xs:
        array, context = compress_for(codec, compression, check_reducible("allreduce", x, op))
        compressed.append(array)
        contexts.append(context)
    operation = _operation(op, name, prescale_factor, postscale_factor, process_set)
    reduced: list[Any] = [None] * len(compressed)
    for indices, part_name in by_dtype(compressed, name):
        part = [compressed[i] for i in indices]
        part_codec = codec if part[0].dtype == jnp.float32 else codecs.NONE
        if traced(part):
            results = traced_allreduce(operation(part_name, part_codec), part)
        else:
            handle = collectives.allreduce_async(
                to_host(part),
                None,
                part_name,
                Reduction(op, prescale_factor, postscale_factor, process_set),
                waits=True,
                codec=part_codec,
            )
            results = from_host(collectives.synchronize(handle))
        for i, result in zip(indices, results, strict=True):
            reduced[i] = result
    return [compression.decompress(*pair) for pair in zip(reduced, contexts, strict=True)]


def allreduce_tree(
    tree: Tree,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> Tree:
    """Reduce all leaves of a pytree as one operation for each dtype; as `allreduce` otherwise."""
    leaves, structure = jax.tree.flatten(tree)
    reduced = grouped_allreduce(
        leaves, op, name, prescale_factor, postscale_factor, process_set, compression
    )
    result: Tree = jax.tree.unflatten(structure, reduced)
    return result


def _operation(
    op: int, name: str | None, prescale: float, postscale: float, process_set: ProcessSet
) -> Any:
    """Return what makes the operation of a name and a codec; ValueError if arguments are wrong."""
    check_op(op)
    members(process_set)
    return lambda part_name, codec: TracedOperation(
        kinds.ALLREDUCE,
        "allreduce",
        checked_name(part_name),
        number_of(process_set),
        reduce=int(op),
        prescale=float(prescale),
        postscale=float(postscale),
        codec=codec,
    )
