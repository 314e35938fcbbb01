"""The collectives of traced functions, with Horovod's gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sirtaki.core.operations import codes
from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.jax.calls import block
from sirtaki.jax.primitive import TracedOperation, bind

Arrays = Sequence[jax.Array]


def _have_gradients(grads: Arrays) -> bool:
    """Return whether these, of one dtype, are gradients; those of integers are empty."""
    return bool(grads) and bool(jnp.issubdtype(grads[0].dtype, jnp.inexact))


def _average(operation: TracedOperation, grads: Arrays) -> list[jax.Array]:
    """Return the gradients' average over the ranks of an operation."""
    allreduce = operation.of_gradient(
        kind=codes.ALLREDUCE, verb="allreduce", reduce=Average, rows=None, received=(), root=0
    )
    averages: list[jax.Array] = traced_allreduce(allreduce, grads)
    return averages


def _forward_of_many(operation: TracedOperation, *given: Any) -> tuple[list[jax.Array], None]:
    """Return the result for the arrays, which come last; gradients need nothing of it."""
    return bind(operation, given[-1]), None


def _forward_of_one(operation: TracedOperation, *given: Any) -> tuple[jax.Array, None]:
    """Return the result for the array, which comes last; gradients need nothing of it."""
    return bind(operation, [given[-1]])[0], None


# ---- allreduce ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def traced_allreduce(operation: TracedOperation, arrays: Arrays) -> list[jax.Array]:
    """Reduce arrays of one dtype."""
    return bind(operation, arrays)


def _allreduce_backward(operation: TracedOperation, _: None, grads: list[Any]) -> tuple[Any]:
    if not _have_gradients(grads):
        return (None,)
    return (traced_allreduce(operation.of_gradient(), grads),)


traced_allreduce.defvjp(_forward_of_many, _allreduce_backward)


# ---- allgather ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def traced_allgather(
    operation: TracedOperation, ranks: int, position: int, arrays: Arrays
) -> list[jax.Array]:
    """Gather arrays of one dtype; `position` is this rank's index among the `ranks`."""
    return bind(operation, arrays)


def _allgather_backward(
    operation: TracedOperation, ranks: int, position: int, _: None, grads: list[Any]
) -> tuple[Any]:
    if not _have_gradients(grads):
        return (None,)
    own = []
    for grad in _average(operation, grads):
        rows = grad.shape[0] // ranks
        own.append(grad[position * rows : (position + 1) * rows])
    return (own,)


traced_allgather.defvjp(_forward_of_many, _allgather_backward)


# ---- broadcast ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def traced_broadcast(operation: TracedOperation, is_root: bool, array: jax.Array) -> jax.Array:
    """Return the root's array."""
    return bind(operation, [array])[0]


def _broadcast_backward(
    operation: TracedOperation, is_root: bool, _: None, grad: Any
) -> tuple[Any]:
    if not _have_gradients([grad]):
        return (None,)
    [average] = _average(operation, [grad])
    return (average if is_root else jnp.zeros_like(average),)


traced_broadcast.defvjp(_forward_of_one, _broadcast_backward)


# ---- alltoall ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def traced_alltoall(operation: TracedOperation, rows: int, array: jax.Array) -> jax.Array:
    """Exchange rows of an array with `rows`."""
    return bind(operation, [array])[0]


def _alltoall_backward(operation: TracedOperation, rows: int, _: None, grad: Any) -> tuple[Any]:
    if not _have_gradients([grad]):
        return (None,)
    sent = operation.splits
    back = operation.of_gradient(splits=operation.received, rows=(sum(sent),), received=sent)
    own = traced_alltoall(back, grad.shape[0], grad)
    kept = jnp.zeros((rows - sum(sent), *own.shape[1:]), own.dtype)
    return (jnp.concatenate([own, kept]),)


traced_alltoall.defvjp(_forward_of_one, _alltoall_backward)


# ---- reducescatter ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def traced_reducescatter(
    operation: TracedOperation, ranks: int, rows: tuple[int, ...], arrays: Arrays
) -> list[jax.Array]:
    """Reduce arrays of one dtype with `rows`, and return this rank's blocks of them."""
    return bind(operation, arrays)


def _reducescatter_backward(
    operation: TracedOperation, ranks: int, rows: tuple[int, ...], _: None, grads: list[Any]
) -> tuple[Any]:
    if not _have_gradients(grads):
        return (None,)
    scale = operation.prescale * operation.postscale
    if operation.reduce == Sum:
        scale *= ranks
    back = operation.of_gradient(
        kind=codes.ALLGATHER,
        verb="allgather",
        reduce=0,
        prescale=1.0,
        postscale=1.0,
        rows=rows,
        received=tuple(block(count, ranks, rank) for count in rows for rank in range(ranks)),
    )
    return (bind(back, [grad * scale for grad in grads]),)


traced_reducescatter.defvjp(_forward_of_many, _reducescatter_backward)
