"""DistributedOptimizer: an optax optimizer that uses gradients reduced over all ranks."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sirtaki.core.operations.compression import Compressor
from sirtaki.core.operations.reduce_ops import Adasum, Average
from sirtaki.core.operations.reduction import check_predivide
from sirtaki.core.world.participants import reduces
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.allreduce_ops import allreduce_tree
from sirtaki.jax.arrays import Compression

try:
    from optax import GradientTransformationExtraArgs as _Transformation
except ImportError:  # any pair of two such functions is a transformation

    class _Transformation(NamedTuple):  # type: ignore[no-redef]
        init: Any
        update: Any


class Transformation(Protocol):
    """The interface of optax's gradient transformations."""

    init: Any
    update: Any


class AccumulationState(NamedTuple):
    """State of the optimizer while it sums gradients of several backward passes.

    count: the number of passes in `gradients`.
    """

    inner: Any
    gradients: Any
    count: jax.Array


def DistributedOptimizer(
    tx: Transformation,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optax transformation that reduces gradients over all ranks before `tx`.

    All gradients of a dtype are reduced as one operation, in place if XLA can.

    Args:
        tx: any optax transformation, or another pair of functions `init` and `update`.
        compression: form of the gradients on the wire, from `Compression`.
        backward_passes_per_step: the number of gradients summed on the rank before they are
            reduced; updates are zero meanwhile.
        op: Average (default), Sum, Min, Max or Product; or Adasum, which combines the updates of
            the ranks instead of the gradients.
        gradient_predivide_factor: with Average, the part f of the division by the number of ranks n
            that precedes the sum: gradients are divided by f before it and by n / f after it.
        process_set: the ranks that take part; on other ranks `tx` works unchanged.

    Raises:
        TypeError: `tx` is no transformation.
        ValueError: another argument is wrong.
    """
    require_transformation(tx)
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    check_predivide(gradient_predivide_factor, op)
    factor = gradient_predivide_factor

    def reduce(tree: Any) -> Any:
        if not reduces(process_set):
            return tree
        return allreduce_tree(tree, op, None, 1.0 / factor, factor, process_set, compression)

    def step(gradients: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        if op == Adasum:
            updates, state = tx.update(gradients, state, params, **extra)
            return reduce(updates), state
        updates, state = tx.update(reduce(gradients), state, params, **extra)
        return updates, state

    if backward_passes_per_step == 1:
        return _Transformation(tx.init, step)
    return _accumulating(tx, step, backward_passes_per_step)


def made_transformation(init: Any, update: Any) -> Any:
    """Return an optax transformation of two functions."""
    return _Transformation(init, update)


def require_transformation(tx: Any) -> None:
    """Raise TypeError if an object is no transformation of optax."""
    if not callable(getattr(tx, "init", None)) or not callable(getattr(tx, "update", None)):
        raise TypeError(f"expected a transformation of optax, got {type(tx).__name__}")


def _accumulating(tx: Transformation, step: Any, passes: int) -> Any:
    """Return the transformation that applies `step` to sums of this number of gradients."""

    def init(params: Any) -> AccumulationState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AccumulationState(tx.init(params), zeros, jnp.zeros((), jnp.int32))

    def update(
        gradients: Any, state: AccumulationState, params: Any = None, **extra: Any
    ) -> tuple[Any, AccumulationState]:
        sums = jax.tree.map(jnp.add, state.gradients, gradients)

        def last() -> tuple[Any, AccumulationState]:
            updates, inner = step(sums, state.inner, params, **extra)
            zeros = jax.tree.map(jnp.zeros_like, sums)
            return updates, AccumulationState(inner, zeros, jnp.zeros_like(state.count))

        def not_last() -> tuple[Any, AccumulationState]:
            updates = jax.tree.map(jnp.zeros_like, sums)
            return updates, AccumulationState(state.inner, sums, state.count + 1)

        result: tuple[Any, AccumulationState] = jax.lax.cond(
            state.count + 1 == passes, last, not_last
        )
        return result

    return _Transformation(init, update)
