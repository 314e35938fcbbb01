"""Collectives of plain values: numbers, arrays, tensors, and objects convertible to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import resolve_op
from sirtaki.keras.backends import backend
from sirtaki.keras.library import LEGACY, keras
from sirtaki.numpy import ops as numpy_ops
from sirtaki.numpy.arrays import check_nested

if LEGACY:
    import tensorflow as tf

Compression = backend.Compression


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduce a value over all ranks.

    Args:
        value: A number, an array, or a tensor or variable of the backend.
        name: Matches the call with those of the other ranks; by default, calls match by order.
        average: Deprecated: whether `op` is Average or Sum.
        prescale_factor: Multiplies every rank's value before the reduction.
        postscale_factor: Multiplies the result.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        compression: The form in which the value is sent, from `Compression`.

    Returns:
        For a tensor or variable, the tensor that the backend's own function returns; otherwise a
        NumPy array or number. A tensor in a graph of TensorFlow 1 is evaluated immediately, to a
        NumPy array.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' values differ in shape or type; for tensors, the backend's error.
        HorovodInternalError: There is no world, or a rank was lost; for tensors as above.
    """
    op = resolve_op(op, average)
    scales: dict[str, Any] = {
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
    }
    if _is_tensor(value):
        reduced = _operation("allreduce", value, name, op=op, compression=compression, **scales)
    elif compression is Compression.none:
        reduced = numpy_ops.allreduce(_array(value), name, op, **scales)
    else:
        tensor = _array(value) if LEGACY else keras.ops.convert_to_tensor(_array(value))
        reduced = _operation("allreduce", tensor, name, op=op, compression=compression, **scales)
        reduced = _array(reduced)
    return _value(reduced)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate the ranks' values along the first dimension, in the order of ranks.

    Args:
        value: As for `allreduce`, with at least one dimension; the first may differ.
        name: As for `allreduce`.

    Returns:
        The value of all ranks; for its type, see `allreduce`.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    if _is_tensor(value):
        return _operation("allgather", value, name)
    return numpy_ops.allgather(_array(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value on all ranks.

    Args:
        value: As for `allreduce`, with the same shape and type on all ranks.
        root_rank: The rank whose value is sent.
        name: As for `allreduce`.

    Returns:
        The root's value; for its type, see `allreduce`.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    if _is_tensor(value):
        return _operation("broadcast", value, name, root_rank=root_rank)
    return _value(numpy_ops.broadcast(_array(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Reduce a value over all ranks, and return this rank's block of its rows.

    Args:
        value: As for `allreduce`, with at least one dimension.
        name: As for `allreduce`.
        op: Average (the default), Sum, Min, Max or Product.

    Returns:
        This rank's rows; for their type, see `allreduce`.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    if _is_tensor(value):
        return _operation("reducescatter", value, name, op=op)
    return numpy_ops.reducescatter(_array(value), name, op=op)


def _is_tensor(value: Any) -> bool:
    if LEGACY:
        return bool(tf.is_tensor(value))
    return isinstance(value, keras.Variable) or bool(keras.ops.is_tensor(value))


def _operation(verb: str, value: Any, name: str | None, **options: Any) -> Any:
    """Return the result of the backend's collective for a tensor."""
    tensor = value if LEGACY else keras.ops.convert_to_tensor(value)
    result = getattr(backend.operations, verb)(tensor, name=name, **options)
    return backend.evaluated(result) if LEGACY else result


def _array(value: Any) -> NDArray[Any]:
    check_nested(value)
    plain = LEGACY or isinstance(value, np.ndarray)
    array = np.asarray(value if plain else keras.ops.convert_to_numpy(value))
    if array.dtype.kind in "OUS":
        raise TypeError(f"expected a number or an array, not {type(value).__name__}")
    return np.ascontiguousarray(array).reshape(array.shape)


def _value(result: Any) -> Any:
    """Return an array, or its number; a tensor unchanged."""
    return result[()] if isinstance(result, np.ndarray) and not result.ndim else result
