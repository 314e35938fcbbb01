"""Collectives on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.groups import Groups
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.numpy.arrays import TENSORS, Array, check_array

_ops: Collectives[Array] = Collectives(TENSORS)
GROUPS: Final[Groups[Array]] = Groups(_ops, lambda array: check_array(array).dtype)
poll = GROUPS.poll


def allreduce_async(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce`; return its handle."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _ops.allreduce_async([array], None, name, reduction)


def allreduce(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce an array over all ranks.

    Args:
        array: Any shape, equal on all ranks; bool, integers, float16 to float64, complex.
        name: Matches the call with the other ranks' calls; default the order of calls.
        op: Average, Sum, Adasum, Min, Max or Product; Adasum of floats, Min and Max not of
            complex numbers.
        prescale_factor: Multiplies every rank's array before the reduction.
        postscale_factor: Multiplies the result.
        process_set: The ranks that take part; default all.

    Returns:
        A new array, bitwise equal on all ranks.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' calls disagree.
        HorovodInternalError: No world, or the operation failed.
    """
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _wait(_ops.allreduce_async([array], None, name, reduction, waits=True))


def allreduce_(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce a contiguous, writable array in place; otherwise like `allreduce`."""
    check_in_place(array)
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _wait(_ops.allreduce_async([array], [array], name, reduction, waits=True))


def allreduce_async_(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce_`; return its handle. Neither read nor change the array meanwhile."""
    check_in_place(array)
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _ops.allreduce_async([array], [array], name, reduction)


def allgather_async(
    array: Array, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `allgather`; return its handle."""
    return _ops.allgather_async([array], name, process_set)


def allgather(
    array: Array, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Concatenate all ranks' arrays along the first dimension, in rank order.

    The first dimension may differ between ranks and be zero; a scalar is an error on all ranks.
    Arguments and errors as `allreduce`.
    """
    return _wait(_ops.allgather_async([array], name, process_set, waits=True))


def broadcast_async(
    array: Array,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `broadcast`; return its handle."""
    return _ops.broadcast_async(array, None, root_rank, name, process_set)


def broadcast(
    array: Array,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Return the root's array; `root_rank` is a rank of the world, also within a set.

    Shapes and dtypes must agree. Arguments and errors as `allreduce`.
    """
    return _wait(_ops.broadcast_async(array, None, root_rank, name, process_set, waits=True))


def broadcast_async_(
    array: Array,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `broadcast_`; return its handle. Neither read nor change the array meanwhile."""
    check_in_place(array)
    return _ops.broadcast_async(array, array, root_rank, name, process_set)


def broadcast_(
    array: Array,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Overwrite a contiguous, writable array with the root's; otherwise like `broadcast`."""
    check_in_place(array)
    return _wait(_ops.broadcast_async(array, array, root_rank, name, process_set, waits=True))


def alltoall_async(
    array: Array,
    splits: Sequence[int] | Array | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `alltoall`; its handle always returns (received rows, received splits)."""
    return GROUPS.finish_with(_ops.alltoall_async(array, splits, name, process_set), tuple)


def alltoall(
    array: Array,
    splits: Sequence[int] | Array | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array | tuple[Array, Array]:
    """Send rows to every rank and receive rows from every rank, in rank order.

    Args:
        array: Rows; other dimensions must agree.
        splits: Rows for each rank; default equal parts. Rows beyond their sum are not sent.
        name: As for `allreduce`.
        process_set: As for `allreduce`.

    Returns:
        The received rows; with `splits`, also the number from each rank.
    """
    handle = _ops.alltoall_async(array, splits, name, process_set, waits=True)
    rows, received = _ops.synchronize(handle)
    return rows if splits is None else (rows, received)


def reducescatter_async(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `reducescatter`; return its handle."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _ops.reducescatter_async([array], name, reduction)


def reducescatter(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce over all ranks and return this rank's block of rows.

    If the rows do not divide evenly, the first ranks get one extra row. `op` is any except Adasum.
    Arguments and errors as `allreduce`.
    """
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _wait(_ops.reducescatter_async([array], name, reduction, waits=True))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank has called it."""
    _ops.barrier(process_set)


def join() -> int:
    """Add zeros to the others' allreduces until all have joined; return the last rank."""
    return _ops.join(global_process_set)


def synchronize(handle: int) -> Any:
    """Wait for a handle and return the result of the blocking form (alltoall: always a tuple).

    In-place forms return the arrays passed to them.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: The operation failed; see its subclass and message.
    """
    return GROUPS.synchronize(handle)


def check_in_place(array: Array) -> None:
    """Raise ValueError for an array whose memory cannot take a result."""
    if not check_array(array).flags.carray:
        raise ValueError("an array that is changed in place must be contiguous and writable")


def _wait(handle: int) -> Array:
    result: Array = _ops.synchronize(handle)[0]
    return result
