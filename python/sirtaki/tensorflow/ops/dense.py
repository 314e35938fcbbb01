"""The collectives of `horovod.tensorflow` for dense tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import codes
from sirtaki.core.operations.groups import by_key
from sirtaki.core.operations.reduction import check_op, check_reduction, check_scattered
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of, rank_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.numpy.arrays import check_nested
from sirtaki.tensorflow.ops.gradients import invalid, run
from sirtaki.tensorflow.ops.graph_values import changes, present_size
from sirtaki.tensorflow.ops.operation import GraphOperation
from sirtaki.tensorflow.ops.tracing import plain_python, unique_name


def reduce_group(
    tensors: Sequence[Any],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    codec: int,
) -> list[Any]:
    """Return the reductions (default: sums) of dense tensors, one operation for each dtype.

    codec: the format in which float32 numbers are sent; see `codecs`.
    """
    given = _reducible(tensors, op)

    def reduce(part: list[Any], suffix: str) -> list[Any]:
        operation = GraphOperation(
            codes.ALLREDUCE,
            unique_name("allreduce", _with(name, suffix)),
            op,
            process_set=number_of(process_set),
            prescale=float(prescale_factor),
            postscale=float(postscale_factor),
            codec=codec if part[0].dtype == tf.float32 else codes.NO_CODEC,
        )
        return run(operation, part)

    return by_key(given, _dtype_name, reduce)


# Types that are not dense tensors, and their conversions.
_SPARSE = {
    tf.IndexedSlices: "only allreduce takes it; give tf.convert_to_tensor(x)",
    tf.SparseTensor: "give tf.sparse.to_dense(x)",
    tf.RaggedTensor: "give x.to_tensor(), or x.flat_values and x.row_lengths()",
}


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
        tf.errors.FailedPreconditionError: The ranks' calls disagree.
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
    """Concatenate several tensors, each like `allgather`.

    Args:
        tensors: At least one; each as for `allgather`.
        name, ignore_name_scope, process_set: As for `allgather`.

    Returns:
        The gathered tensors, in the same order.

    Raises:
        ValueError, tf.errors.OpError: As for `allgather`.
    """
    _require_world()

    def gather(part: list[Any], suffix: str) -> list[Any]:
        full = unique_name("allgather", _with(name, suffix))
        operation = GraphOperation(codes.ALLGATHER, full, process_set=number_of(process_set))
        return run(operation, part)

    return by_key(_with_rows("allgather", tensors), _dtype_name, gather)


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
        tensor: The same shape and dtype on all ranks.
        root_rank: A rank of the world, also within a process set.
        name, ignore_name_scope, process_set: As for `allgather`.

    Returns:
        A tensor of the same shape and dtype. Its gradient is averaged on the root, zero elsewhere.

    Raises:
        ValueError, tf.errors.OpError: As for `allgather`.
    """
    return broadcast_group([tensor], root_rank, name, process_set)[0]


def broadcast_group(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    ordered: bool = False,
) -> list[Any]:
    """Return the root's tensors, with one operation for each dtype."""
    _require_world()
    try:
        root = rank_of("root_rank", root_rank, process_set)
    except ValueError as error:
        raise invalid(str(error)) from None

    def send(part: list[Any], suffix: str) -> list[Any]:
        full = unique_name("broadcast", _with(name, suffix))
        number = number_of(process_set)
        operation = GraphOperation(
            codes.BROADCAST, full, root_rank=root, process_set=number, ordered=ordered
        )
        return run(operation, part)

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
        splits: Number of rows for each rank, 1-D; default equal parts. Rows beyond their sum are
            not sent.
        name, ignore_name_scope, process_set: As for `allgather`.

    Returns:
        The received rows; with `splits`, also the number from each rank.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: The splits do not fit; nothing was sent.
        tf.errors.OpError: As for `allgather`.
    """
    _require_world()
    [tensor] = _with_rows("alltoall", [tensor])
    rows = _equal_splits(tensor, present_size(process_set)) if splits is None else _splits(splits)
    full = unique_name("alltoall", name)
    operation = GraphOperation(codes.ALLTOALL, full, process_set=number_of(process_set))
    received, received_splits = run(operation, [tensor], rows)
    return received if splits is None else (received, received_splits)


def scatter_group(
    tensors: Sequence[Any],
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> list[Any]:
    """Return this rank's rows of the sums of dense tensors, one operation for each dtype."""
    check_scattered(op)
    given = _with_rows("reducescatter", _reducible(tensors, op))

    def scatter(part: list[Any], suffix: str) -> list[Any]:
        operation = GraphOperation(
            codes.REDUCESCATTER,
            unique_name("reducescatter", _with(name, suffix)),
            op,
            process_set=number_of(process_set),
            prescale=float(prescale_factor),
            postscale=float(postscale_factor),
        )
        return run(operation, part)

    return by_key(given, _dtype_name, scatter)


@plain_python
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Return once all ranks have called it; in a graph, an operation that ends then.

    Args:
        process_set: The ranks that wait for each other.

    Raises:
        ValueError: This rank is not in the process set, or the set is not registered.
        tf.errors.AbortedError: A rank was lost.
    """
    _require_world()
    full = unique_name("barrier", None)
    number = number_of(process_set)
    return run(GraphOperation(codes.BARRIER, full, process_set=number, ordered=True))[0]


@plain_python
def join() -> Any:
    """Add zeros to the others' allreduces until all ranks have joined.

    Returns:
        A scalar, int32: the rank that joined last.

    Raises:
        tf.errors.AbortedError: A rank was lost.
    """
    _require_world()
    return run(GraphOperation(codes.JOIN, "join", ordered=True))[0]


def dense(tensor: Any) -> Any:
    """Return a value as a tensor.

    Raises:
        TypeError: It is sparse, or of strings.
    """
    for kind, cure in _SPARSE.items():
        if isinstance(tensor, kind):
            raise TypeError(f"expected a dense tensor, got {type(tensor).__name__}: {cure}")
    check_nested(tensor)
    tensor = tf.convert_to_tensor(tensor)
    name = _dtype_name(tensor)
    if name not in codes.DTYPES:
        raise TypeError(f"tensors of type {name} are not supported: {_cure(tensor.dtype)}")
    return tensor


def _cure(dtype: Any) -> str:
    if dtype.is_quantized:
        return "give tf.bitcast(x, tf.int8), or the integers of its size, or dequantize it"
    return "send it with broadcast_object or allgather_object"


def _reducible(tensors: Sequence[Any], op: int) -> list[Any]:
    """Return dense tensors; ValueError for a reduction that is invalid or undefined for them."""
    check_op(op)
    _require_world()
    found = [dense(each) for each in tensors]
    for each in found:
        check_reduction(op, codes.DTYPES[_dtype_name(each)])
    return found


def _with_rows(verb: str, tensors: Sequence[Any]) -> list[Any]:
    """Return values as tensors; InvalidArgumentError if one is known to have no dimensions."""
    found = [dense(each) for each in tensors]
    if any(each.shape.rank == 0 for each in found):
        raise invalid(f"{verb} needs rows, but got a tensor without dimensions")
    return found


def _require_world() -> None:
    state.current_world()  # raises if init() was not called


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
    count = "all" if changes() else members
    need = f"alltoall without splits needs a first dimension divisible by {count} ranks"
    rows = tensor.shape[0] if tensor.shape.rank and not changes() else None
    if rows is not None and rows % members:
        raise invalid(f"{need}, not {rows}")
    count = tf.shape(tensor)[0]
    known = [] if rows is not None else [tf.debugging.assert_equal(count % members, 0, need)]
    with tf.control_dependencies(known):
        return tf.fill([members], count // members)
