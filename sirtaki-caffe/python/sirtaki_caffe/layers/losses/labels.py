"""Scores and the labels that belong to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from sirtaki_caffe.layers.base import Layer, Shape
from sirtaki_caffe.layers.checks import axis_in
from sirtaki_caffe.layers.loss_normalizer import VALID, LossNormalizer


class LabelledLoss(Layer):
    """A loss of scores, over whose `axis` the classes go, and of one label for each place.

    Labels are numbers whose fraction is dropped; one that names no class is an error (Caffe reads
    beyond its blob).
    """

    bottoms = (2, 2)
    is_loss = True
    no_gradient_to: ClassVar[tuple[int, ...]] = (1,)
    default_normalization = VALID

    def class_axis(self, rank: int) -> int:
        """The axis of the classes; 1 unless a layer has a field for it."""
        return axis_in(self, 1, rank)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bottoms."""
        self._axis = self.class_axis(len(bottoms[0]))
        self.normalizer = LossNormalizer(self, self.default_normalization)

    def split(self, shape: Shape) -> tuple[int, int, int]:
        """Items, classes, and places in an item."""
        return (
            math.prod(shape[: self._axis]),
            shape[self._axis],
            math.prod(shape[self._axis + 1 :]),
        )

    def check_labels(self, scores: Shape, labels: Shape) -> None:
        """Refuse a number of labels other than that of places."""
        outer, _, inner = self.split(scores)
        if math.prod(labels) != outer * inner:
            raise self.error(
                f"scores of shape {list(scores)} with classes on axis {self._axis} need "
                f"{outer * inner} labels, not a bottom of shape {list(labels)}"
            )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """A number."""
        self.check_labels(bottoms[0], bottoms[1])
        return [()]

    def wrong_label(self, labels: torch.Tensor, classes: int) -> Exception:
        """The error for labels that name no class."""
        low, high = int(labels.min()), int(labels.max())
        return self.error(
            f"its labels run from {low} to {high}, but it has {classes} classes, 0 to {classes - 1}"
        )

    def pick(
        self, values: torch.Tensor, labels: torch.Tensor, counted: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The value of each label's class, and where it is.

        Args:
            values: (items, classes, places).
            labels: (items, places), whole numbers.
            counted: Which labels are not ignored; ignored ones pick class 0. None: all.
        """
        at = labels if counted is None else labels.where(counted, 0)
        at = at.unsqueeze(1)
        try:
            return values.gather(1, at).squeeze(1), at
        except (RuntimeError, IndexError) as error:
            raise self.wrong_label(at, values.shape[1]) from error
