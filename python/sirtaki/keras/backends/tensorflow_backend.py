"""Keras on TensorFlow: Keras 3, and Keras 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

import sirtaki.tensorflow as operations
from sirtaki.core.world import state
from sirtaki.core.world.state import current_world
from sirtaki.keras.distributed import Distributed, Keras3Optimizer, build
from sirtaki.keras.library import LEGACY
from sirtaki.tensorflow.accumulation import Accumulation
from sirtaki.tensorflow.compression import Compression
from sirtaki.tensorflow.gradient_reduction import GradientReduction as Reduction
from sirtaki.tensorflow.ops.tracing import plain_python

__all__ = ["Compression", "Reduction", "Step", "broadcast_variables", "mixin", "operations"]

state.watch_tracing(tf.inside_function)


class Step:
    """The additional work of a distributed optimizer in a step.

    Args:
        reduction: Reduces the gradients.
        passes: The number of backward passes whose gradients are summed before a reduction.
        average: Whether their sum is divided by the number of passes.
    """

    def __init__(self, reduction: Reduction, passes: int, average: bool) -> None:
        self.reduction = reduction
        self._accumulation = Accumulation(passes, average) if passes > 1 else None

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], Any],
    ) -> Any:
        """Reduce gradients and apply them, or only accumulate them before the last pass."""
        if self._accumulation is None:
            return _whole(self.reduction(gradients, variables), apply)
        if self.reduction.sparse_as_dense:
            gradients = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        begun = bool(self._accumulation.variables)
        found = self._accumulation.add(
            list(gradients), lambda sums: self.reduction(sums, variables)
        )
        if not begun and in_graph():
            evaluated([each.initializer for each in self._accumulation.variables])

        def own_work() -> Any:
            done = apply(found)
            return done if in_graph() else tf.no_op()  # a function runs all that it traces

        return self._accumulation.apply(own_work)


def _whole(found: list[Any], apply: Callable[[list[Any]], Any]) -> Any:
    """Apply reduced gradients; in functions of an elastic job only when all have arrived.

    Otherwise the loss of a peer could leave only some variables of a step changed.
    """
    if tf.executing_eagerly() or not current_world().config.elastic:
        return apply(found)
    tensors = tf.nest.flatten(found, expand_composites=True)
    with tf.control_dependencies([each for each in tensors if each is not None]):
        return apply(found)


class _Keras3(Keras3Optimizer):
    apply = plain_python(Keras3Optimizer.apply)


class _Keras2(Distributed):
    @plain_python
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any
    ) -> Any:
        """Reduce gradients over the ranks and apply them."""
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        with tf.init_scope():
            build(self, variables)
        own = super().apply_gradients
        return self._sirtaki_step.apply(
            [gradient for gradient, _ in pairs],
            variables,
            lambda found: own(zip(found, variables, strict=True), *args, **kwargs),
        )


def mixin() -> type:
    """Return the additional methods of an optimizer's subclass."""
    return _Keras2 if LEGACY else _Keras3


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    """Overwrite Keras variables with the root's."""
    values = [variable if LEGACY else variable.value for variable in variables]
    evaluated(operations.broadcast_variables(values, root_rank))


def evaluated(result: Any) -> Any:
    """Return an operation's result; in a graph of TensorFlow 1, after running it."""
    return tf.compat.v1.keras.backend.get_session().run(result) if in_graph() else result


def in_graph() -> bool:
    """Return whether the current call builds a graph of TensorFlow 1."""
    return not (tf.executing_eagerly() or tf.inside_function())
