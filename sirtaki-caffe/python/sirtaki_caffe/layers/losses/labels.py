"""Scores and their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from sirtaki_caffe.layers.base import Layer, Shape
from sirtaki_caffe.layers.checks import axis_in
from sirtaki_caffe.layers.loss_normalizer import VALID, LossNormalizer


class LabelledLoss(Layer):
    """A loss of scores, with the classes along `axis`, and of one label for each position.

    Labels are numbers whose fraction is dropped; a label without a class is an error (Caffe reads
    beyond its blob).
    """

    bottoms = (2, 2)
    is_loss = True
    no_gradient_to: ClassVar[tuple[int, ...]] = (1,)
    default_normalization = VALID

    def class_axis(self, rank: int) -> int:
        """Return the axis of the classes; 1 unless a layer has a field for it."""
        return axis_in(self, 1, rank)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bottoms."""
        self._axis = self.class_axis(len(bottoms[0]))
        self.normalizer = LossNormalizer(self, self.default_normalization)

    def split(self, shape: Shape) -> tuple[int, int, int]:
        """Return the items, classes, and positions in an item."""
        return (
            math.prod(shape[: self._axis]),
            shape[self._axis],
            math.prod(shape[self._axis + 1 :]),
        )

    def check_labels(self, scores: Shape, labels: Shape) -> None:
        """Require one label for each position."""
        outer, _, inner = self.split(scores)
        if math.prod(labels) != outer * inner:
            raise self.error(
                f"scores of shape {list(scores)} with classes on axis {self._axis} need "
                f"{outer * inner} labels, not a bottom of shape {list(labels)}"
            )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        self.check_labels(bottoms[0], bottoms[1])
        return [()]

    def wrong_label(self, labels: torch.Tensor, classes: int) -> Exception:
        """Return the error for labels without a class."""
        low, high = int(labels.min()), int(labels.max())
        return self.error(
            f"its labels run from {low} to {high}, but it has {classes} classes, 0 to {classes - 1}"
        )

    def pick(
        self, values: torch.Tensor, labels: torch.Tensor, counted: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the value of each label's class, and its index.

        Args:
            values: (items, classes, positions).
            labels: (items, positions), whole numbers.
            counted: The labels that are not ignored; ignored ones pick class 0. None: all.
        """
        at = labels if counted is None else labels.where(counted, 0)
        at = at.unsqueeze(1)
        try:
            return values.gather(1, at).squeeze(1), at
        except (RuntimeError, IndexError) as error:
            raise self.wrong_label(at, values.shape[1]) from error
