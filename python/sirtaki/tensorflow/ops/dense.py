"""The collectives of `horovod.tensorflow`, of tensors that are dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import codecs, kinds
from sirtaki.core.operations.dtypes import CODES
from sirtaki.core.operations.grouping import by_key
from sirtaki.core.operations.reduce_ops import Adasum
from sirtaki.core.operations.reduction import check_op, check_reduction
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of, rank_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.ops import gradients as _registered  # noqa: F401
from sirtaki.tensorflow.ops.errors import invalid
from sirtaki.tensorflow.ops.graph_values import changes, present_size
from sirtaki.tensorflow.ops.names import unique
from sirtaki.tensorflow.ops.operation import GraphOperation
from sirtaki.tensorflow.ops.tracing import plain_python


def reduce_group(
    tensors: Sequence[Any],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    codec: int,
) -> list[Any]:
    """Return the sums, or what `op` says, of dense tensors: one operation for each dtype.

    codec: what float32 numbers are rounded to on their way, see `codecs`.
    """
    given = _reducible(tensors, op)

    def reduce(part: list[Any], suffix: str) -> list[Any]:
        operation = GraphOperation(
            kinds.ALLREDUCE,
            unique("allreduce", _with(name, suffix)),
            op,
            process_set=number_of(process_set),
            prescale=float(prescale_factor),
            postscale=float(postscale_factor),
            codec=codec if part[0].dtype == tf.float32 else codecs.NONE,
        )
        return operation.run(part)

    return by_key(given, _dtype_name, reduce)


@plain_python
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenate the ranks' tensors along the first dimension, in the order of ranks.

    Args:
        tensor: At least one dimension; the first may differ between ranks and be zero.
        name: Matches the call with those of the other ranks.
        ignore_name_scope: Accepted; names never depend on the scope.
        process_set: The ranks that take part.

    Returns:
        A tensor of the same dtype. Its gradient is averaged over the ranks.

    Raises:
        ValueError: An argument is wrong; nothing was sent.
        tf.errors.FailedPreconditionError: The ranks' calls do not agree.
        tf.errors.AbortedError: The operation failed.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@plain_python
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenate several tensors, each as `allgather` does."""
    _require_world()

    def gather(part: list[Any], suffix: str) -> list[Any]:
        full = unique("allgather", _with(name, suffix))
        return GraphOperation(kinds.ALLGATHER, full, process_set=number_of(process_set)).run(part)

    return by_key([dense(each) for each in tensors], _dtype_name, gather)


@plain_python
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's tensor on all ranks.

    Args:
        tensor: Of the same shape and dtype on all ranks.
        root_rank: A rank of the world, also within a process set.
        name: As `allgather`.
        ignore_name_scope: As `allgather`.
        process_set: As `allgather`.
    """
    return broadcast_group([tensor], root_rank, name, process_set)[0]


def broadcast_group(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    ordered: bool = False,
) -> list[Any]:
    """Return the root's tensors: one operation for each dtype."""
    _require_world()
    try:
        root = rank_of("root_rank", root_rank, process_set)
    except ValueError as error:
        raise invalid(str(error)) from None

    def send(part: list[Any], suffix: str) -> list[Any]:
        full = unique("broadcast", _with(name, suffix))
        number = number_of(process_set)
        operation = GraphOperation(
            kinds.BROADCAST, full, root_rank=root, process_set=number, ordered=ordered
        )
        return operation.run(part)

    return by_key([dense(each) for each in tensors], _dtype_name, send)


@plain_python
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows to every rank and receive rows from every rank, in the order of ranks.

    Args:
        tensor: Rows; the other dimensions must agree.
        splits: How many rows each rank gets, 1-D; default equal parts. Rows beyond their sum are
            not sent.
        name: As `allgather`.
        ignore_name_scope: As `allgather`.
        process_set: As `allgather`.

    Returns:
        The received rows; with `splits` also how many came from each rank.
    """
    _require_world()
    tensor = dense(tensor)
    rows = _equal_splits(tensor, present_size(process_set)) if splits is None else _splits(splits)
    full = unique("alltoall", name)
    operation = GraphOperation(kinds.ALLTOALL, full, process_set=number_of(process_set))
    received, received_splits = operation.run([tensor], rows)
    return received if splits is None else (received, received_splits)


def scatter_group(
    tensors: Sequence[Any],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> list[Any]:
    """Return this rank's rows of the sums of dense tensors: one operation for each dtype."""
    if op == Adasum:
        raise NotImplementedError("reducescatter takes every reduction but Adasum")
    given = _reducible(tensors, op)
    if any(each.shape.rank == 0 for each in given):
        raise invalid("reducescatter needs rows to scatter, but got a scalar")

    def scatter(part: list[Any], suffix: str) -> list[Any]:
        operation = GraphOperation(
            kinds.REDUCESCATTER,
            unique("reducescatter", _with(name, suffix)),
            op,
            process_set=number_of(process_set),
            prescale=float(prescale_factor),
            postscale=float(postscale_factor),
        )
        return operation.run(part)

    return by_key(given, _dtype_name, scatter)


@plain_python
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Return when all ranks have called it; in a graph, an operation that ends then."""
    _require_world()
    full = unique("barrier", None)
    return GraphOperation(
        kinds.BARRIER, full, process_set=number_of(process_set), ordered=True
    ).run()[0]


@plain_python
def join() -> Any:
    """Add zeros to the others' allreduces until all ranks have joined.

    Returns:
        A scalar, int32: the rank that joined last.
    """
    _require_world()
    return GraphOperation(kinds.JOIN, "join", ordered=True).run()[0]


def dense(tensor: Any) -> Any:
    """Return a value as a tensor.

    Raises:
        TypeError: It is sparse, or of strings.
    """
    if isinstance(tensor, tf.IndexedSlices | tf.SparseTensor | tf.RaggedTensor):
        raise TypeError(
            f"expected a dense tensor, got {type(tensor).__name__}; only allreduce takes "
            "tf.IndexedSlices"
        )
    tensor = tf.convert_to_tensor(tensor)
    if not (tensor.dtype.is_numpy_compatible and tensor.dtype != tf.string):
        raise TypeError(f"tensors of type {tensor.dtype.name} are not supported")
    return tensor


def _reducible(tensors: Sequence[Any], op: int) -> list[Any]:
    """Return dense tensors; ValueError for what is no reduction, or has no meaning for them."""
    check_op(op)
    _require_world()
    found = [dense(each) for each in tensors]
    for each in found:
        if _dtype_name(each) in CODES:
            check_reduction(op, CODES[_dtype_name(each)])
    return found


def _require_world() -> None:
    state.rank()  # says that init() was not called, if that is it


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype.base_dtype.name)


def _with(name: str | None, suffix: str) -> str | None:
    return (name or "noname") + suffix if name is not None or suffix else None


def _splits(splits: Any) -> Any:
    rows = tf.convert_to_tensor(splits)
    if not rows.dtype.is_integer:
        raise invalid(f"splits must be integers, not {rows.dtype.name}")
    if rows.shape.rank not in (1, None):
        raise invalid(f"splits must be 1-D, not of shape {rows.shape}")
    return tf.cast(rows, tf.int32)


def _equal_splits(tensor: Any, members: Any) -> Any:
    if tensor.shape.rank == 0:
        return tf.zeros([members], tf.int32)  # all ranks are told alike
    count = "all" if changes() else members
    need = f"alltoall without splits needs a first dimension divisible by {count} ranks"
    rows = tensor.shape[0] if tensor.shape.rank and not changes() else None
    if rows is not None and rows % members:
        raise invalid(f"{need}, not {rows}")
    count = tf.shape(tensor)[0]
    known = [] if rows is not None else [tf.debugging.assert_equal(count % members, 0, need)]
    with tf.control_dependencies(known):
        return tf.fill([members], count // members)
