"""`DistributedGradientTape`: gradients of a tape, reduced over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations.gradient_reduction import local_variables
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.compression import Compression, Compressor
from sirtaki.tensorflow.gradient_reduction import GradientReduction
from sirtaki.tensorflow.ops.tracing import plain_python


class _Distributed:
    """The additions of a distributed tape to its class."""

    _sirtaki_reduction: GradientReduction

    @plain_python
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """Return the gradients of the target, reduced over the ranks."""
        own = super().gradient(  # type: ignore[misc]
            target, sources, output_gradients, unconnected_gradients=unconnected_gradients
        )
        flat = tf.nest.flatten(own)
        reduced = self._sirtaki_reduction(flat, tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, gradients: Sequence[Any], sources: Sequence[Any]
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Divide gradients into local ones and reduced ones.

        Args:
            gradients: One for each source.
            sources: The variables.

        Returns:
            Pairs of a gradient and its variable: the local ones, and the reduced ones.
        """
        pairs = list(zip(gradients, sources, strict=True))
        reduction = self._sirtaki_reduction
        stays = [reduction.key_of(source) in reduction.local for source in sources]
        local = [pair for pair, stay in zip(pairs, stays, strict=True) if stay]
        return local, [pair for pair, stay in zip(pairs, stays, strict=True) if not stay]

    def register_local_source(self, source: Any) -> None:
        """Keep gradients of a variable, a layer, or lists of these on their rank."""
        self._sirtaki_reduction.register_local(source)


@plain_python
def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make a tape's `gradient` return gradients that are reduced over the ranks.

    Args:
        gradtape: A `tf.GradientTape`, before or after recording.
        device_dense: Accepted; tensors are exchanged in the host's memory.
        device_sparse: As for `device_dense`.
        compression: The form in which gradients are sent, from `Compression`.
        sparse_as_dense: Whether `tf.IndexedSlices` are summed as dense tensors.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: Gradients are divided by it before the sum, and by the rest of an
            average's divisor after the sum.
        num_groups: The number of operations in which gradients are sent; 0: one for each dtype.
        groups: Lists of variables whose gradients are sent together, or a number as `num_groups`.
        process_set: The ranks that take part; on other ranks gradients are not changed.
        scale_local_gradients: Whether to divide gradients of local sources by the number of
            ranks.

    Returns:
        The tape itself. Its class is now a subclass of its old class.

    Raises:
        ValueError: It is already distributed, or another argument is wrong.
    """
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
    if isinstance(gradtape, _Distributed):
        raise ValueError("the tape is distributed already")
    cls = type(gradtape)
    gradtape.__class__ = type(cls.__name__, (_Distributed, cls), {"__module__": cls.__module__})
    gradtape._sirtaki_reduction = reduction
    return gradtape


@plain_python
def PartialDistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Make a distributed tape, like `DistributedGradientTape`, with layers that stay local.

    Args:
        gradtape, device_dense, device_sparse, compression: As for `DistributedGradientTape`.
        sparse_as_dense, op, gradient_predivide_factor: As for `DistributedGradientTape`.
        num_groups, groups, process_set: As for `DistributedGradientTape`.
        scale_local_gradients: As for `DistributedGradientTape`.
        local_layers: Layers or variables, one or a list, whose gradients stay on their rank.

    Returns:
        The tape itself.

    Raises:
        ValueError: `local_layers` contains another object, or a layer that has not been built.
    """
    variables = local_variables(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape.register_local_source(variables)
    return tape
