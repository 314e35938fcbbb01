"""Collectives as Python functions of a graph, if the compiled ones cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sirtaki.core.errors import HorovodInternalError, MismatchError
from sirtaki.core.operations import codes
from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.world.participants import process_set_of
from sirtaki.numpy.arrays import TENSORS
from sirtaki.tensorflow.ops.operation import GraphOperation

_collectives: Collectives[Any] = Collectives(TENSORS)


def run(
    operation: GraphOperation,
    tensors: Sequence[Any],
    splits: Any,
    gradients_of: Callable[..., list[Any]],
) -> list[Any]:
    """Do the same as `gradients.run`, with the same `gradients_of`."""
    if operation.kind == codes.BARRIER:
        return [_node(lambda: _barrier(operation), [], [])]
    if operation.kind == codes.JOIN:
        return [_node(lambda: _join(operation), [], tf.int32)]
    inputs = [tf.convert_to_tensor(tensor) for tensor in tensors]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(*inputs: Any) -> Any:
        results = _results(operation, inputs, splits)

        def backward(*upstream: Any) -> list[Any]:
            return gradients_of(operation, inputs, results, upstream)[: len(inputs)]

        return results, backward

    return list(differentiable(*inputs))


def _results(operation: GraphOperation, inputs: Sequence[Any], splits: Any) -> list[Any]:
    types = [each.dtype for each in inputs]
    if operation.kind == codes.ALLTOALL:
        types = [*types, tf.int32]
        inputs = [*inputs, splits]
    results = _node(lambda *arrays: _run(operation, arrays), inputs, types)
    known = operation.kind in (codes.ALLREDUCE, codes.BROADCAST)
    for result, given in zip(results, inputs, strict=True):
        rows = given.shape[:1] if known else [None]
        result.set_shape(
            given.shape if known else tf.TensorShape(rows).concatenate(given.shape[1:])
        )
    return list(results)


def _node(function: Callable[..., Any], inputs: Sequence[Any], types: Any) -> Any:
    results = tf.numpy_function(_with_our_text(function), inputs, types)
    # In eager mode, TensorFlow returns a list of one item as the item.
    return [results] if isinstance(types, list) and tf.is_tensor(results) else results


def _with_our_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with errors that TensorFlow reports as for compiled operations."""

    def wrapped(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except MismatchError as error:
            raise tf.errors.FailedPreconditionError(None, None, _named(error)) from error
        except HorovodInternalError as error:
            raise tf.errors.AbortedError(None, None, _named(error)) from error
        except ValueError as error:
            raise tf.errors.InvalidArgumentError(None, None, str(error)) from error

    return wrapped


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _run(operation: GraphOperation, arrays: Sequence[Any]) -> list[Any]:
    arrays = [np.asarray(each, order="C") for each in arrays]
    if operation.kind != codes.BROADCAST:
        return _collectives.synchronize(_start(operation, arrays))
    handles = []
    for number, array in enumerate(arrays):
        name = f"{operation.name}.{number}" if operation.name and number else operation.name
        handles.append(_start(operation.but(name=name), [array]))
    return [_collectives.synchronize(handle)[0] for handle in handles]


def _start(operation: GraphOperation, arrays: list[Any]) -> int:
    verb, _, rest = operation.name.partition(".")
    name = rest if verb else None
    process_set = process_set_of(operation.process_set)
    reduction = Reduction(operation.reduce_op, operation.prescale, operation.postscale, process_set)
    if operation.kind == codes.ALLREDUCE:
        return _collectives.allreduce_async(arrays, None, name, reduction, codec=operation.codec)
    if operation.kind == codes.REDUCESCATTER:
        return _collectives.reducescatter_async(arrays, name, reduction)
    if operation.kind == codes.ALLGATHER:
        return _collectives.allgather_async(arrays, name, process_set)
    if operation.kind == codes.ALLTOALL:
        array, splits = arrays
        return _collectives.alltoall_async(array, splits, name, process_set)
    [array] = arrays
    return _collectives.broadcast_async(array, None, operation.root_rank, name, process_set)


def _barrier(operation: GraphOperation) -> list[Any]:
    _collectives.barrier(process_set_of(operation.process_set))
    return []


def _join(operation: GraphOperation) -> Any:
    return np.int32(_collectives.join(process_set_of(operation.process_set)))
