"""Allreduce and reducescatter with sparse tensors, compression and deprecated arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import codes
from sirtaki.core.operations.compression import codec_of, compress_all, decompress_all
from sirtaki.core.operations.groups import by_key, part_name
from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.core.operations.reduction import resolve_op
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.compression import Compression, Compressor
from sirtaki.tensorflow.ops.dense import dense, grouped_allgather, reduce_group, scatter_group
from sirtaki.tensorflow.ops.graph_values import present_size
from sirtaki.tensorflow.ops.tracing import plain_python


@plain_python
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduce a tensor over all ranks.

    Args:
        tensor: The same shape and dtype on all ranks; or `tf.IndexedSlices`, whose rows are
            gathered from all ranks.
        average: Deprecated: whether `op` is Average or Sum.
        device_dense: Accepted; tensors are exchanged in the host's memory.
        device_sparse: As for `device_dense`.
        compression: The form in which the tensor is sent, from `Compression`.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor: Multiplies every rank's tensor before the reduction.
        postscale_factor: Multiplies the result.
        name: Matches the call with those of the other ranks; by default, calls match by order.
        process_set: The ranks that take part.
        ignore_name_scope: Accepted; names never depend on the scope.

    Returns:
        A tensor of the same shape and dtype. Its gradient is reduced in the same way.

    Raises:
        ValueError, TypeError: An argument is wrong; nothing was sent.
        tf.errors.FailedPreconditionError: The ranks' calls disagree; training can go on.
        tf.errors.AbortedError: The operation failed, for example because a rank was lost.
    """
    op = resolve_op(op, average)
    [reduced] = _reduced(
        [tensor], name, compression, op, prescale_factor, postscale_factor, process_set
    )
    return reduced


@plain_python
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduce several tensors, dense or sparse; all dense ones of a dtype are one operation.

    Args:
        tensors: At least one; each as for `allreduce`.
        average, device_dense, device_sparse, compression, op: As for `allreduce`.
        prescale_factor, postscale_factor, process_set: As for `allreduce`.
        ignore_name_scope, name: As for `allreduce`.

    Returns:
        The reduced tensors, in the same order.

    Raises:
        ValueError, TypeError, tf.errors.OpError: As for `allreduce`.
    """
    op = resolve_op(op, average)
    return _reduced(tensors, name, compression, op, prescale_factor, postscale_factor, process_set)


@plain_python
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce a tensor over all ranks, and return this rank's block of its rows.

    Args:
        tensor: At least one dimension; of the same shape and dtype on all ranks. If the rows do not
            divide evenly, the first ranks get one extra row.
        device_dense, compression, name: As for `allreduce`.
        op: Average (the default), Sum, Min, Max or Product.
        process_set, ignore_name_scope: As for `allreduce`.
        prescale_factor, postscale_factor: As for `allreduce`.

    Returns:
        This rank's rows, of the same dtype. The gradient is gathered from all ranks, scaled like
        the tensor, and with Sum also by the number of ranks.

    Raises:
        ValueError, TypeError, tf.errors.OpError: As for `allreduce`.
    """
    [own] = grouped_reducescatter(
        [tensor],
        device_dense,
        compression,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        name,
    )
    return own


@plain_python
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Reduce several tensors, each like `reducescatter`.

    Args:
        tensors: At least one; each as for `reducescatter`.
        device_dense, compression, op, process_set: As for `reducescatter`.
        prescale_factor, postscale_factor, name: As for `reducescatter`.

    Returns:
        This rank's rows of each tensor, in the same order.

    Raises:
        ValueError, TypeError, tf.errors.OpError: As for `allreduce`.
    """
    sent, contexts = compress_all(codes.NO_CODEC, compression, map(dense, tensors))
    results = scatter_group(sent, name, op, prescale_factor, postscale_factor, process_set)
    return decompress_all(compression, results, contexts)


def _reduced(
    tensors: Sequence[Any],
    name: str | None,
    compression: type[Compressor],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> list[Any]:
    factors = (float(prescale_factor), float(postscale_factor))

    def reduce(part: list[Any], suffix: str) -> list[Any]:
        full = part_name(name, suffix)
        if isinstance(part[0], tf.IndexedSlices):
            return _gather_slices(part, full, op, factors, process_set)
        codec = codec_of(compression, op)
        sent, contexts = compress_all(codec, compression, map(dense, part))
        results = reduce_group(sent, full, op, *factors, process_set, codec)
        return decompress_all(compression, results, contexts)

    return by_key(tensors, _layout, reduce)


def _layout(tensor: Any) -> str:
    return "sparse" if isinstance(tensor, tf.IndexedSlices) else "dense"


def _gather_slices(
    slices: list[Any],
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> list[Any]:
    if op not in (Average, Sum) or factors != (1.0, 1.0):
        raise NotImplementedError(
            "tf.IndexedSlices can only be summed or averaged, without factors; convert them with "
            "tf.convert_to_tensor, or give sparse_as_dense=True"
        )
    if op == Average and any(each.values.dtype.is_integer for each in slices):
        raise ValueError(
            "tf.IndexedSlices of integers cannot be averaged exactly: sum them, or convert them "
            "with tf.convert_to_tensor"
        )
    own = [each.values for each in slices] + [each.indices for each in slices]
    part_name = None if name is None else f"{name}.slices"
    gathered = grouped_allgather(own, part_name, process_set=process_set)
    values, indices = gathered[: len(slices)], gathered[len(slices) :]
    if op == Average:
        values = [each / tf.cast(present_size(process_set), each.dtype) for each in values]
    return [
        tf.IndexedSlices(*rows, own.dense_shape)
        for *rows, own in zip(values, indices, slices, strict=True)
    ]
