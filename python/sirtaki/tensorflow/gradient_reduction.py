"""Reduction of a step's gradients, for tapes and optimizers of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import gradient_reduction as core
from sirtaki.tensorflow.compression import Compression, Compressor
from sirtaki.tensorflow.ops.collectives import allreduce, grouped_allreduce
from sirtaki.tensorflow.ops.graph_values import present_size
from sirtaki.tensorflow.ops.tracing import plain_python


def key_of(variable: Any) -> int:
    """Return a key equal for a variable, a reference to it, and a Keras variable around it."""
    if hasattr(variable, "deref"):
        variable = variable.deref()
    inner = "_variable" if _casts(variable) else "_value"
    held = getattr(variable, inner, None)
    return id(held if isinstance(held, tf.Variable) else variable)


def divided(gradient: Any, divisor: Any) -> Any:
    """Divide a gradient, which may be sparse."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(divisor, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(divisor, gradient.dtype)


def _casts(variable: Any) -> bool:
    """Return whether a variable is Keras 2's mixed-precision wrapper of another."""
    return any(cls.__name__ == "AutoCastVariable" for cls in type(variable).__mro__)


@dataclass
class GradientReduction(core.GradientReduction):
    """How the gradients of a step are reduced, and of which variables.

    Attributes:
        sparse_as_dense: Whether `tf.IndexedSlices` are summed as dense tensors.
    """

    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False

    @plain_python
    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return the reduced gradients; None stays None.

        Args:
            gradients: Tensors, `tf.IndexedSlices` or None.
            variables: The gradients' variables, if known.
        """
        return super().__call__(gradients, variables)

    def key_of(self, variable: Any) -> int:
        """Return a key that is equal for all forms of a variable."""
        return key_of(variable)

    def reduce(self, gradients: list[Any], name: str) -> list[Any]:
        """Reduce gradients together."""
        dense = [tf.convert_to_tensor(each) for each in gradients]
        return self.reduce_by(grouped_allreduce, dense, name)

    def kept(self, gradient: Any) -> Any:
        """Return an unreduced gradient, dense if reduced ones are."""
        return gradient if self.goes_alone(gradient) else tf.convert_to_tensor(gradient)

    def divide(self, gradient: Any, divisor: Any) -> Any:
        """Divide a gradient of a local variable."""
        return divided(gradient, divisor)

    def divisor(self) -> Any:
        """Return the number of ranks; in functions of elastic jobs, that of the current world."""
        return present_size(self.process_set)

    def goes_alone(self, gradient: Any) -> bool:
        """Return whether a gradient is sparse and remains sparse."""
        return isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense

    def reduce_alone(self, gradient: Any, name: str) -> Any:
        """Reduce a sparse gradient."""
        return allreduce(gradient, op=self.op, process_set=self.process_set, name=name)
