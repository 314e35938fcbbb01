"""Keras on PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import sirtaki.torch as operations
from sirtaki.core.operations import gradient_reduction
from sirtaki.keras.distributed import Distributed, Keras3Optimizer
from sirtaki.keras.library import keras
from sirtaki.torch.compression import Compression, Compressor

__all__ = ["Compression", "Reduction", "Step", "broadcast_variables", "mixin", "operations"]


@dataclass
class Reduction(gradient_reduction.GradientReduction):
    """The reduction of a step's gradients, which are never sparse."""

    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = True

    def reduce(self, gradients: list[torch.Tensor], name: str) -> list[torch.Tensor]:
        """Reduce gradients together."""
        return self.reduce_by(operations.grouped_allreduce, gradients, f"keras.{name}")


class Step:
    """The additional work of a distributed optimizer in a step.

    Args:
        reduction: Reduces the gradients.
        passes: The number of backward passes whose gradients are summed before a reduction.
        average: Whether their sum is divided by the number of passes.
    """

    def __init__(self, reduction: Reduction, passes: int, average: bool) -> None:
        self.reduction = reduction
        self._passes = passes
        self._average = average
        self._count = 0
        self._sums: list[torch.Tensor | None] = []

    @torch.no_grad()
    def apply(
        self,
        gradients: Sequence[torch.Tensor | None],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], Any],
    ) -> Any:
        """Reduce gradients and apply them, or only accumulate them before the last pass."""
        if self._passes > 1:
            self._add(gradients)
            if self._count < self._passes:
                return None
            gradients = self._take()
        return apply(self.reduction(gradients, variables))

    def _add(self, gradients: Sequence[torch.Tensor | None]) -> None:
        if self._count == 0:
            self._sums = [None if each is None else each.clone() for each in gradients]
        else:
            pairs = zip(self._sums, gradients, strict=True)
            self._sums = [b if a is None else a if b is None else a.add_(b) for a, b in pairs]
        self._count += 1

    def _take(self) -> list[torch.Tensor | None]:
        sums, self._sums, self._count = self._sums, [], 0
        if not self._average:
            return sums
        return [None if each is None else each / self._passes for each in sums]


class TorchOptimizer(Keras3Optimizer):
    """An optimizer on PyTorch, where newer Keras can exchange gradients itself."""

    def _sirtaki_attached(self) -> None:
        _exchange_once()


@functools.cache
def _exchange_once() -> None:
    """Keep Keras from wrapping models of distributed optimizers in DDP.

    Keras 3.16 does so where there is a group of `torch.distributed`. Gradients would travel twice,
    and DDP knows nothing of the optimizer's options.
    """
    initialize = getattr(keras.Model, "_initialize_ddp", None)
    if initialize is None:
        return
    make = keras.Model.make_train_function

    def initialize_ddp(model: Any) -> None:
        if not isinstance(getattr(model, "optimizer", None), Distributed):
            initialize(model)

    def make_train_function(model: Any, force: bool = False) -> Any:
        if isinstance(model.optimizer, Distributed):
            model.ddp_model = None  # of a `fit` before the optimizer was distributed
        return make(model, force)

    keras.Model._initialize_ddp = initialize_ddp
    keras.Model.make_train_function = make_train_function


def mixin() -> type:
    """Return the additional methods of an optimizer's subclass."""
    return TorchOptimizer


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    """Overwrite Keras variables with the root's."""
    tensors = [(f"keras.{i}", variable.value.detach()) for i, variable in enumerate(variables)]
    operations.broadcast_parameters(tensors, root_rank)
