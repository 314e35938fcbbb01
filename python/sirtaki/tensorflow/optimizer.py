"""`DistributedOptimizer` for optimizers of TensorFlow 1 and Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.compression import Compression, Compressor
from sirtaki.tensorflow.gradient_reduction import GradientReduction
from sirtaki.tensorflow.v1 import DistributedV1Optimizer


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer reduce gradients over the ranks before it applies them.

    Args:
        optimizer: A `tf.compat.v1.train.Optimizer`, or one of Keras 3 or of `tf_keras`.
        name: The name of a TensorFlow 1 optimizer.
        use_locking: As for `tf.compat.v1.train.Optimizer`.
        device_dense: Accepted; tensors are exchanged in the host's memory.
        device_sparse: As for `device_dense`.
        compression: The form in which gradients are sent, from `Compression`.
        sparse_as_dense: Whether `tf.IndexedSlices` are summed as dense tensors.
        backward_passes_per_step: The backward passes whose gradients are summed before they are
            reduced.
        op: Average, Sum or Adasum (Adasum not with Keras).
        gradient_predivide_factor: Gradients are divided by it before the sum, and by the rest of an
            average's divisor after the sum.
        average_aggregated_gradients: Whether the sum is divided by the number of passes.
        num_groups: The number of operations in which gradients are sent; 0: one for each dtype.
        groups: Lists of variables whose gradients are sent together, or a number as `num_groups`.
        process_set: The ranks that take part; on other ranks gradients are not changed.
        scale_local_gradients: Whether gradients of local variables are divided by the number of
            ranks.

    Returns:
        For TensorFlow 1 a new optimizer; for Keras the optimizer itself, whose class is now a
        subclass of its old class.

    Raises:
        ValueError: It is not an optimizer, or an argument does not suit it.
    """
    if not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"{optimizer!r} is not an optimizer of TensorFlow or Keras")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from sirtaki.keras import optimizer as keras_optimizer

        return keras_optimizer.DistributedOptimizer(
            optimizer,
            name=name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if backward_passes_per_step > 1 and tf.executing_eagerly():
        raise ValueError(
            "backward_passes_per_step > 1 needs a graph: an optimizer of TensorFlow 1 in eager "
            "mode takes every gradient at once"
        )
    reduction = GradientReduction(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,  # type: ignore[arg-type]
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    return DistributedV1Optimizer(
        optimizer,
        reduction,
        backward_passes_per_step,
        average_aggregated_gradients,
        name,
        use_locking,
    )
