"""Accumulation of the gradients of several passes before their reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Accumulation:
    """Sums of gradients in variables, within graphs and in eager mode.

    Args:
        passes: The number of passes before the sums are reduced.
        average: Whether the sums are then divided by the passes.
    """

    def __init__(self, passes: int, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._count: Any = None
        self._sums: list[Any] = []
        self._last: Any = None

    @property
    def variables(self) -> list[Any]:
        """The variables of the sums and of their number of passes."""
        return [] if self._count is None else [self._count, *self._sums]

    def add(self, gradients: list[Any], reduce: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Add gradients; return the reduced sums in a step's last pass.

        Args:
            gradients: Dense tensors or None; None in the same positions in every pass.
            reduce: Reduces sums over the ranks.

        Raises:
            ValueError: A gradient is `tf.IndexedSlices`.
        """
        if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and "
                "`sparse_as_dense` is False."
            )
        present = [i for i, gradient in enumerate(gradients) if gradient is not None]
        dense = [tf.convert_to_tensor(gradients[i]) for i in present]
        self._build(dense)
        added = [v.assign_add(g) for v, g in zip(self._sums, dense, strict=True)]
        with tf.control_dependencies(added):
            count = tf.identity(self._count.assign_add(1))
        self._last = tf.equal(count % self._passes, 0)
        with tf.control_dependencies([self._last]):
            results = tf.cond(
                self._last, lambda: self._take(reduce, present, len(gradients)), lambda: dense
            )
        reduced: list[Any] = [None] * len(gradients)
        for place, result in zip(present, tf.nest.flatten(results), strict=True):
            reduced[place] = result
        return reduced

    def apply(self, apply: Callable[[], Any], step: Any = None) -> Any:
        """Run `apply` in every last pass; in other passes, count the step if there is a counter.

        Args:
            apply: Applies the result of `add` in this pass.
            step: A variable that counts steps.
        """

        def skip() -> Any:
            return tf.no_op() if step is None else step.assign_add(1).op

        def run() -> Any:
            done = apply()
            with tf.control_dependencies([] if done is None else [done]):
                return tf.no_op()

        return tf.cond(self._last, run, skip)

    def _build(self, dense: list[Any]) -> None:
        if self._count is not None:
            return
        with tf.init_scope():
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False, name="passes")
            self._sums = [
                tf.Variable(tf.zeros(each.shape, each.dtype), trainable=False, name="gradient_sum")
                for each in dense
            ]

    def _take(
        self, reduce: Callable[[list[Any]], list[Any]], present: list[int], gradients: int
    ) -> list[Any]:
        """Return the reduced sums, and start new ones; `present` are their positions."""
        sums: list[Any] = [None] * gradients
        for place, each in zip(present, self._sums, strict=True):
            total = tf.identity(each)
            sums[place] = total / tf.cast(self._passes, total.dtype) if self._average else total
        reduced = [each for each in reduce(sums) if each is not None]
        with tf.control_dependencies(reduced):
            cleared = [each.assign(tf.zeros_like(each)) for each in self._sums]
        with tf.control_dependencies(cleared):
            return [tf.identity(each) for each in reduced]
