"""Asynchronous operations, for eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.numpy import ops as numpy_ops
from sirtaki.tensorflow.ops.dense import dense


def allreduce_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce` of an eager tensor; return a handle for `synchronize`. Not differentiable.

    Args:
        tensor, name, op, prescale_factor, postscale_factor, process_set: As for `allreduce`.

    Returns:
        A handle; `synchronize(handle)` returns the reduced tensor.

    Raises:
        RuntimeError: Within a graph, which itself starts operations as early as possible.
        ValueError, TypeError: An argument is wrong; nothing was sent.
    """
    return numpy_ops.allreduce_async(
        _array(tensor), name, op, prescale_factor, postscale_factor, process_set
    )


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `allgather` of an eager tensor; return a handle for `synchronize`.

    Args:
        tensor, name, process_set: As for `allgather`.

    Raises:
        RuntimeError: As for `allreduce_async`.
        ValueError, TypeError: An argument is wrong; nothing was sent.
    """
    return numpy_ops.allgather_async(_array(tensor), name, process_set)


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `broadcast` of an eager tensor; return a handle for `synchronize`.

    Args:
        tensor, root_rank, name, process_set: As for `broadcast`.

    Raises:
        RuntimeError: As for `allreduce_async`.
        ValueError, TypeError: An argument is wrong; nothing was sent.
    """
    return numpy_ops.broadcast_async(_array(tensor), root_rank, name, process_set)


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `alltoall` of an eager tensor; its handle always returns (rows, received splits).

    Args:
        tensor, splits, name, process_set: As for `alltoall`.

    Raises:
        RuntimeError: As for `allreduce_async`.
        ValueError, TypeError: An argument is wrong; nothing was sent.
    """
    return numpy_ops.alltoall_async(
        _array(tensor), None if splits is None else _array(splits), name, process_set
    )


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `reducescatter` of an eager tensor; return a handle for `synchronize`.

    Args:
        tensor, name, op, prescale_factor, postscale_factor, process_set: As for `reducescatter`.

    Raises:
        RuntimeError: As for `allreduce_async`.
        ValueError, TypeError: An argument is wrong; nothing was sent.
    """
    return numpy_ops.reducescatter_async(
        _array(tensor), name, op, prescale_factor, postscale_factor, process_set
    )


def synchronize(handle: int) -> Any:
    """Wait for a handle and return the result of the blocking form (alltoall: always a tuple).

    Args:
        handle: From a function whose name ends in `_async`.

    Raises:
        ValueError: The handle is unknown, or was synchronized already.
        HorovodInternalError: The operation failed; the message names the tensor and the reason.
    """
    results = numpy_ops.synchronize(handle)
    if isinstance(results, tuple):
        return tuple(tf.convert_to_tensor(each) for each in results)
    return tf.convert_to_tensor(results)


def poll(handle: int) -> bool:
    """Return whether the operation is done.

    Args:
        handle: From a function whose name ends in `_async`.

    Raises:
        ValueError: The handle is unknown, or was synchronized already.
    """
    return numpy_ops.poll(handle)


def _array(tensor: Any) -> Any:
    if not tf.executing_eagerly():
        raise RuntimeError(
            "asynchronous forms are for eager mode; within a graph use the plain form, of which "
            "several run at a time"
        )
    return np.asarray(dense(tensor).numpy())  # numpy() of a scalar returns no array
