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


@dataclass
class GradientReduction(core.GradientReduction):
    """What is done with the gradients of a step, and of which variables.

    Attributes:
        sparse_as_dense: Whether `tf.IndexedSlices` are summed as whole tensors.
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
            variables: What they are gradients of, where that is known.
        """
        return super().__call__(gradients, variables)

    def reduce(self, gradients: list[Any], name: str) -> list[Any]:
        """Reduce gradients together."""
        prescale, postscale = self.factors
        return grouped_allreduce(
            [tf.convert_to_tensor(each) for each in gradients],
            compression=self.compression,
            op=self.op,
            process_set=self.process_set,
            name=name,
            prescale_factor=prescale,
            postscale_factor=postscale,
        )

    def kept(self, gradient: Any) -> Any:
        """Return a gradient that is not reduced, dense if reduced ones are."""
        return gradient if self.goes_alone(gradient) else tf.convert_to_tensor(gradient)

    def divide(self, gradient: Any, divisor: Any) -> Any:
        """Divide a gradient of a local variable."""
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / tf.cast(divisor, gradient.dtype)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(divisor, gradient.dtype)

    def divisor(self) -> Any:
        """Return the number of ranks; in functions of elastic jobs that of the present world."""
        return present_size(self.process_set)

    def goes_alone(self, gradient: Any) -> bool:
        """Tell whether a gradient is sparse and stays so."""
        return isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense

    def reduce_alone(self, gradient: Any, name: str) -> Any:
        """Reduce a sparse gradient."""
        return allreduce(gradient, op=self.op, process_set=self.process_set, name=name)
