"""Accumulation of the gradients of several passes, for custom optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import tensorflow as tf

from sirtaki.core.operations.gradient_reduction import local_variables
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.accumulation import Accumulation
from sirtaki.tensorflow.gradient_reduction import divided, key_of
from sirtaki.tensorflow.ops.graph_values import present_size


class LocalGradientAggregationHelper:
    """Accumulates the gradients of several passes, and reduces their sums.

    Args:
        backward_passes_per_step: The number of passes before the sums are reduced.
        allreduce_func: A function of gradients and their variables that returns reduced gradients.
        sparse_as_dense: Whether `tf.IndexedSlices` become dense tensors.
        average_aggregated_gradients: Whether sums are divided by the number of passes.
        rank: Accepted and ignored.
        optimizer_type: Accepted; a step counter is used where it is given.
        process_set: The ranks that take part.
        scale_local_gradients: Whether to divide gradients of local variables by the number of
            ranks.
        name: Accepted.

    Raises:
        ValueError: There are no passes.
    """

    _OPTIMIZER_TYPE_KERAS: Final = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY: Final = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        if backward_passes_per_step < 1:
            raise ValueError("backward_passes_per_step must be > 0")
        self._accumulation = (
            Accumulation(backward_passes_per_step, average_aggregated_gradients)
            if backward_passes_per_step > 1
            else None
        )
        self._reduce = allreduce_func
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        self._scale = scale_local_gradients
        self._local: dict[int, Any] = {}

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable on its rank."""
        self._local.update((key_of(each), each) for each in local_variables(var))

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Add gradients; return the reduced sums in a step's last pass.

        Args:
            grads: Tensors or None; None in the same positions in every pass.
            vars: The gradients' variables.
        """
        gradients = [
            tf.convert_to_tensor(each)
            if self._sparse_as_dense and isinstance(each, tf.IndexedSlices)
            else each
            for each in grads
        ]
        if self._accumulation is None:
            return self._reduced(gradients, vars)
        return self._accumulation.add(gradients, lambda sums: self._reduced(sums, vars))

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Run the closure in a step's last pass; in other passes only count the step.

        Args:
            apply_grads_closure: Applies the result of `compute_gradients` in this pass.
            optimizer: Accepted; the closure knows it.
            args: The arguments of the optimizer's `apply_gradients`, possibly `global_step`.
            kwargs: As for `args`.
        """
        if self._accumulation is None:
            return apply_grads_closure()
        step = kwargs.get("global_step", args[1] if len(args) > 1 else None)
        return self._accumulation.apply(apply_grads_closure, step)

    def _reduced(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        local = [key_of(each) in self._local for each in variables]
        results = [
            self._own(each) if own else each for each, own in zip(gradients, local, strict=True)
        ]
        shared = [place for place, own in enumerate(local) if not own]
        reduced = self._reduce([gradients[i] for i in shared], [variables[i] for i in shared])
        for place, gradient in zip(shared, reduced, strict=True):
            results[place] = gradient
        return results

    def _own(self, gradient: Any) -> Any:
        """Return the gradient of a local variable, scaled if requested."""
        if gradient is None or not self._scale:
            return gradient
        return divided(gradient, present_size(self._process_set))
