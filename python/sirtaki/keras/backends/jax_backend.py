"""Keras on JAX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import sirtaki.jax as operations
from sirtaki.core.operations import gradient_reduction
from sirtaki.core.operations.compression import Compressor
from sirtaki.jax import primitive
from sirtaki.jax.arrays import Compression
from sirtaki.keras.distributed import Keras3Optimizer

__all__ = ["Compression", "Reduction", "Step", "broadcast_variables", "mixin", "operations"]

primitive.register()


@dataclass
class Reduction(gradient_reduction.GradientReduction):
    """The reduction of a step's gradients, which are never sparse."""

    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = True

    def reduce(self, gradients: list[jax.Array], name: str) -> list[jax.Array]:
        """Reduce gradients together; compiled steps are distinguished by their names."""
        return self.reduce_by(operations.grouped_allreduce, gradients, None)


class Step:
    """The additional work of a distributed optimizer in a step.

    Args:
        reduction: Reduces the gradients.
        passes: The number of backward passes whose gradients are summed before a reduction.
        average: Whether their sum is divided by the number of passes.
    """

    def __init__(self, reduction: Reduction, passes: int, average: bool) -> None:
        self.reduction = reduction
        self.passes = passes
        self.divisor = passes if average else 1
        self.count: Any = None
        self.sums: list[Any] = []
        self.reduced = False

    @property
    def variables(self) -> list[Any]:
        """The variables of the sums: the number of passes, and one for each variable."""
        return [] if self.count is None else [self.count, *self.sums]

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """Let the optimizer apply gradients that are already reduced."""
        self.reduced = True
        try:
            yield
        finally:
            self.reduced = False


class _Optimizer(Keras3Optimizer):
    """Keras's trainer calls `stateless_apply`, which often, but not always, calls `apply`."""

    def _sirtaki_attached(self) -> None:
        if self.built:
            self._sirtaki_add_sums(self._trainable_variables)

    def build(self, variables: list[Any]) -> None:
        """Make the optimizer's variables."""
        super().build(variables)
        self._sirtaki_add_sums(variables)

    def _sirtaki_add_sums(self, variables: list[Any]) -> None:
        """Sums are variables, as is all state that outlives a compiled step."""
        step = self._sirtaki_step
        if step.passes == 1 or step.count is not None:
            return
        step.count = self.add_variable((), dtype="int32", name="passes")
        step.sums = [self.add_variable_from_reference(v, "gradient_sum") for v in variables]

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        """Reduce gradients over the ranks and apply them, or add them to those of other passes."""
        step = self._sirtaki_step
        own = super(Keras3Optimizer, self).apply
        if step.reduced:
            return own(grads, trainable_variables)
        variables = self._sirtaki_built(trainable_variables)
        if step.passes == 1:
            with step.own_work():
                return own(step.reduction(grads, variables), variables)
        gradient_of = {id(v): g for v, g in zip(variables, grads, strict=True)}
        trained, state = self.stateless_apply(
            [each.value for each in self.variables],
            [gradient_of.get(id(each)) for each in self._trainable_variables],
            [each.value for each in self._trainable_variables],
        )
        for variable, value in zip(self._trainable_variables, trained, strict=True):
            variable.assign(value)
        for variable, value in zip(self.variables, state, strict=True):
            variable.assign(value)
        return None

    def stateless_apply(
        self, optimizer_variables: list[Any], grads: list[Any], trainable_variables: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return the trained and the optimizer's variables, as `apply` would update them."""
        step = self._sirtaki_step
        own = super().stateless_apply
        with step.own_work():
            if step.passes > 1:
                return self._sirtaki_pass(own, optimizer_variables, grads, trainable_variables)
            reduced = step.reduction(grads, self._trainable_variables)
            found: tuple[list[Any], list[Any]] = own(
                optimizer_variables, reduced, trainable_variables
            )
            return found

    def _sirtaki_pass(
        self, own: Any, state: list[Any], grads: list[Any], trained: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        step = self._sirtaki_step
        place = {id(variable): i for i, variable in enumerate(self.variables)}
        count = state[place[id(step.count)]] + 1
        sums = [
            total if gradient is None else total + gradient.astype(total.dtype)
            for total, gradient in zip(
                [state[place[id(each)]] for each in step.sums], grads, strict=True
            )
        ]

        def with_sums(values: list[Any], sums: list[Any]) -> list[Any]:
            changed = {place[id(v)]: s for v, s in zip(step.variables, sums, strict=True)}
            return [changed.get(i, value) for i, value in enumerate(values)]

        def last() -> tuple[list[Any], list[Any]]:
            totals = [
                None if gradient is None else total / step.divisor
                for total, gradient in zip(sums, grads, strict=True)
            ]
            reduced = step.reduction(totals, self._trainable_variables)
            new_trained, new_state = own(state, reduced, trained)
            zeros = [jnp.zeros_like(each) for each in (count, *sums)]
            return list(new_trained), with_sums(new_state, zeros)

        def not_last() -> tuple[list[Any], list[Any]]:
            return list(trained), with_sums(state, [count, *sums])

        found: tuple[list[Any], list[Any]] = jax.lax.cond(count == step.passes, last, not_last)
        return found

    def save_own_variables(self, store: Any) -> None:
        """Save the variables of the optimizer's class."""
        with self._sirtaki_without_sums():
            super().save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        """Load the variables of the optimizer's class."""
        with self._sirtaki_without_sums():
            super().load_own_variables(store)

    @contextmanager
    def _sirtaki_without_sums(self) -> Iterator[None]:
        all_variables = self._variables[:]
        sums = {id(each) for each in self._sirtaki_step.variables}
        self._variables[:] = [each for each in all_variables if id(each) not in sums]
        try:
            yield
        finally:
            self._variables[:] = all_variables


def mixin() -> type:
    """Return the additional methods of an optimizer's subclass."""
    return _Optimizer


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    """Overwrite Keras variables with the root's."""
    values = operations.broadcast_tree([variable.value for variable in variables], root_rank)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
