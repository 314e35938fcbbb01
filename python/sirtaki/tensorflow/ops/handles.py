"""Asynchronous forms, for eager mode."""

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

    Raises:
        RuntimeError: Within a graph, which starts operations as early as it can by itself.
    """
    return numpy_ops.allreduce_async(
        _array(tensor), name, op, prescale_factor, postscale_factor, process_set
    )


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `allgather` of an eager tensor; as `allreduce_async`."""
    return numpy_ops.allgather_async(_array(tensor), name, process_set)


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `broadcast` of an eager tensor; as `allreduce_async`."""
    return numpy_ops.broadcast_async(_array(tensor), root_rank, name, process_set)


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `alltoall` of an eager tensor; its handle always gives (rows, received splits)."""
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
    """Start `reducescatter` of an eager tensor; as `allreduce_async`."""
    return numpy_ops.reducescatter_async(
        _array(tensor), name, op, prescale_factor, postscale_factor, process_set
    )


def synchronize(handle: int) -> Any:
    """Wait for a handle and return what its blocking form returns (alltoall: always a tuple)."""
    results = numpy_ops.synchronize(handle)
    if isinstance(results, tuple):
        return tuple(tf.convert_to_tensor(each) for each in results)
    return tf.convert_to_tensor(results)


def poll(handle: int) -> bool:
    """Tell whether the operation is done. ValueError for an unknown handle."""
    return numpy_ops.poll(handle)


def _array(tensor: Any) -> Any:
    if not tf.executing_eagerly():
        raise RuntimeError(
            "asynchronous forms are for eager mode; within a graph use the plain form, of which "
            "several run at a time"
        )
    return np.asarray(dense(tensor).numpy())  # of a scalar it is no array
