"""Collectives on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sirtaki import _core
from sirtaki.core.operations import dtypes
from sirtaki.core.operations.collectives import Collectives, Tensors
from sirtaki.core.operations.groups import Groups
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.world.process_sets import ProcessSet, global_process_set

# That is NDArray[Any], whose module takes long to import.
Array = np.ndarray[Any, np.dtype[Any]]

_FOREIGN = ("bfloat16", "complex32")  # NumPy has no such types
_CODES = {np.dtype(name): code for name, code in dtypes.REDUCED.items() if name not in _FOREIGN}


def dtype_of(array: Array) -> int:
    """Return the core's number of an array's type; ValueError if it is not supported."""
    code = _CODES.get(array.dtype)
    if code is not None:
        return code
    if array.dtype.name != "bfloat16":
        raise ValueError(f"Tensor type {array.dtype} is not supported.")
    return dtypes.BF16


def check_array(array: object) -> Array:
    """Return the array; TypeError if it is none."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected a numpy array, not {type(array).__name__}")
    return array


class _NumpyTensors:
    """The adapter for numpy; bfloat16 arrays are those of the ml_dtypes package."""

    def view(self, tensor: Array) -> tuple[int, tuple[int, ...], int]:
        check_array(tensor)
        code = _CODES.get(tensor.dtype)
        if code is None:
            # The buffer protocol does not know the type.
            return _core.address(tensor.view(np.uint16)), tensor.shape, dtype_of(tensor)
        return _core.address(tensor), tensor.shape, code

    def contiguous(self, tensor: Array) -> Array:
        check_array(tensor)
        return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")

    def empty_like(self, tensor: Array) -> Array:
        return np.empty(tensor.shape, tensor.dtype)

    def from_buffer(self, buffer: object, like: Array, shape: tuple[int, ...]) -> Array:
        assert isinstance(buffer, np.ndarray)
        return buffer.view(like.dtype).reshape(shape)

    def splits(self, splits: object) -> list[int]:
        array = np.asarray(splits)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError("splits must be a 1-D list or array of integers")
        return [int(rows) for rows in array]

    def wrap_splits(self, received: list[int], like: object) -> Array:
        return np.asarray(received, like.dtype if isinstance(like, np.ndarray) else np.int32)


TENSORS: Final[Tensors[Array]] = _NumpyTensors()
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
    return _ops.allreduce_async(
        [array],
        None,
        name,
        (op, prescale_factor, postscale_factor, process_set),
    )


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
        prescale_factor: Multiplies every rank's array before.
        postscale_factor: Multiplies the result.
        process_set: The ranks that take part; default all.

    Returns:
        A new array, the same bits on all ranks.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' calls do not agree.
        HorovodInternalError: No world, or the operation failed.
    """
    return _wait(
        _ops.allreduce_async(
            [array],
            None,
            name,
            (op, prescale_factor, postscale_factor, process_set),
            waits=True,
        )
    )


def allreduce_(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce a contiguous, writable array in place; as `allreduce` otherwise."""
    check_in_place(array)
    return _wait(
        _ops.allreduce_async(
            [array],
            [array],
            name,
            (op, prescale_factor, postscale_factor, process_set),
            waits=True,
        )
    )


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
    """Return the root's array on every rank; `root_rank` is a rank of the world, also within a set.

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
    """Overwrite a contiguous, writable array with the root's; as `broadcast` otherwise."""
    check_in_place(array)
    return _wait(_ops.broadcast_async(array, array, root_rank, name, process_set, waits=True))


def alltoall_async(
    array: Array,
    splits: Sequence[int] | Array | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `alltoall`; its handle always gives (received rows, received splits)."""
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
        name: As `allreduce`.
        process_set: As `allreduce`.

    Returns:
        The received rows; with `splits` also how many came from each rank.
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
    return _ops.reducescatter_async(
        [array],
        name,
        (op, prescale_factor, postscale_factor, process_set),
    )


def reducescatter(
    array: Array,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce over all ranks and return this rank's block of rows.

    If the rows do not divide evenly, the first ranks get one more. `op` is any except Adasum.
    Arguments and errors as `allreduce`.
    """
    return _wait(
        _ops.reducescatter_async(
            [array],
            name,
            (op, prescale_factor, postscale_factor, process_set),
            waits=True,
        )
    )


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank has called it."""
    _ops.barrier(process_set)


def join() -> int:
    """Add zeros to the others' allreduces until all have joined; return the last rank."""
    return _ops.join(global_process_set)


def synchronize(handle: int) -> Any:
    """Wait for a handle and return what its blocking form returns (alltoall: always a tuple).

    In-place forms return the arrays that they were given.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: The operation failed; the subclass and message say how.
    """
    return GROUPS.synchronize(handle)


def check_in_place(array: Array) -> None:
    """Raise ValueError for an array whose memory cannot take a result."""
    if not check_array(array).flags.carray:
        raise ValueError("an array that is changed in place must be contiguous and writable")


def _wait(handle: int) -> Array:
    result: Array = _ops.synchronize(handle)[0]
    return result
