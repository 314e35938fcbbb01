"""Collectives of plain values: numbers, arrays, and what else becomes an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirtaki import numpy_ops
from sirtaki.core.reduce_ops import Average
from sirtaki.core.reduction import resolve_op
from sirtaki.keras.backends import backend
from sirtaki.keras.library import LEGACY, keras

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
        name: Pairs the call with those of the other ranks; default their order.
        average: Deprecated: whether `op` is Average or Sum.
        prescale_factor: Multiplies every rank's value before.
        postscale_factor: Multiplies the result.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        compression: What is sent in place of the value.

    Returns:
        A NumPy array, or a NumPy number.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        MismatchError: The ranks' values differ in shape or type.
        HorovodInternalError: There is no world, or a rank was lost.
    """
    array = _array(value)
    op = resolve_op(op, average)
    if compression is Compression.none:
        return _value(numpy_ops.allreduce(array, name, op, prescale_factor, postscale_factor))
    tensor = array if LEGACY else keras.ops.convert_to_tensor(array)
    reduced = backend.allreduce(tensor, op, name, prescale_factor, postscale_factor, compression)
    return _value(_array(reduced))


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate the ranks' values along the first dimension, in the order of ranks.

    Args:
        value: As of `allreduce`, with at least one dimension, of which the first may differ.
        name: As of `allreduce`.
    """
    return numpy_ops.allgather(_array(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value on all ranks.

    Args:
        value: As of `allreduce`, of the same shape and type on all ranks.
        root_rank: The rank whose value is sent.
        name: As of `allreduce`.
    """
    return _value(numpy_ops.broadcast(_array(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Reduce a value over all ranks, and return this rank's block of its rows.

    Args:
        value: As of `allreduce`, with at least one dimension.
        name: As of `allreduce`.
        op: Average, Sum, Min, Max or Product.
    """
    return numpy_ops.reducescatter(_array(value), name, op=op)


def _array(value: Any) -> NDArray[Any]:
    array = np.asarray(value if LEGACY else keras.ops.convert_to_numpy(value))
    if array.dtype.kind in "OUS":
        raise TypeError(f"expected a number or an array, not {type(value).__name__}")
    return np.ascontiguousarray(array).reshape(array.shape)


def _value(array: NDArray[Any]) -> Any:
    return array if array.ndim else array[()]
