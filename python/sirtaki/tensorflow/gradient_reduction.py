"""Reduction of a step's gradients, for tapes and optimizers of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from sirtaki.core.membership import size_of
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.core.reduce_ops import Average
from sirtaki.tensorflow.collectives import allreduce, grouped_allreduce
from sirtaki.tensorflow.compression import Compression, Compressor
from sirtaki.tensorflow.tracing import plain_python


@dataclass
class GradientReduction:
    """What is done with the gradients of a step, and of which variables.

    Attributes:
        op: Average, Sum or Adasum.
        compression: What is sent in place of gradients.
        sparse_as_dense: Whether `tf.IndexedSlices` are summed as whole tensors.
        gradient_predivide_factor: Divides before the sum; the rest of an average is divided after.
        num_groups: In how many operations gradients are sent; 0: in one for each dtype.
        groups: Lists of variables whose gradients are sent together; the others' follow.
        process_set: The ranks that take part.
        scale_local_gradients: Whether gradients of local variables are divided by the ranks.
        local: By identity, the variables whose gradients stay on their rank.
    """

    op: int = Average
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Sequence[Sequence[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    local: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if isinstance(self.groups, int):
            self.num_groups, self.groups = self.groups, None
        if self.num_groups < 0:
            raise ValueError(f"num_groups={self.num_groups} must not be negative")

    def register_local(self, variable: Any) -> None:
        """Keep the gradient of a variable on its rank."""
        self.local[id(variable)] = variable

    @plain_python
    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return the reduced gradients; None stays None.

        Args:
            gradients: Tensors, `tf.IndexedSlices` or None.
            variables: What they are gradients of, where that is known.
        """
        results = list(gradients)
        keys = [id(variable) for variable in variables or [None] * len(results)]
        shared = []
        for place, gradient in enumerate(results):
            if gradient is None:
                continue
            if variables is not None and keys[place] in self.local:
                results[place] = self._scaled(gradient)
            elif isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                results[place] = allreduce(
                    gradient, op=self.op, process_set=self.process_set, name=f"gradient.{place}"
                )
            else:
                shared.append(place)
        for number, places in enumerate(self._parts(shared, keys)):
            parts = [tf.convert_to_tensor(results[place]) for place in places]
            for place, reduced in zip(places, self._reduced(parts, number), strict=True):
                results[place] = reduced
        return results

    def _scaled(self, gradient: Any) -> Any:
        if not self.scale_local_gradients:
            return gradient
        ranks = size_of(self.process_set)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / ranks, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(ranks, gradient.dtype)

    def _reduced(self, gradients: list[Any], number: int) -> list[Any]:
        factor = self.gradient_predivide_factor
        return grouped_allreduce(
            gradients,
            compression=self.compression,
            op=self.op,
            prescale_factor=1.0 / factor,
            postscale_factor=factor,
            process_set=self.process_set,
            name=f"gradients.{number}",
        )

    def _parts(self, places: list[int], keys: list[int]) -> list[list[int]]:
        """Return which gradients are sent together."""
        if self.groups is not None:
            return self._grouped(places, keys)
        count = min(self.num_groups or 1, len(places))
        if count == 0:
            return []
        each, more = divmod(len(places), count)
        ends = [0]
        for part in range(count):
            ends.append(ends[-1] + each + (part < more))
        return [places[a:b] for a, b in itertools.pairwise(ends)]

    def _grouped(self, places: list[int], keys: list[int]) -> list[list[int]]:
        group_of = {
            id(variable): number
            for number, group in enumerate(self.groups or ())
            for variable in group
        }
        parts: dict[int, list[int]] = {}
        for place in places:
            parts.setdefault(group_of.get(keys[place], len(self.groups or ())), []).append(place)
        return [parts[number] for number in sorted(parts)]
