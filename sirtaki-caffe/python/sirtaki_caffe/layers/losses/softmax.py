"""Softmax, with and without its loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import axis_in
from sirtaki_caffe.layers.losses.labels import LabelledLoss
from sirtaki_caffe.proto.schema import TRAIN

_LEAST = torch.finfo(torch.float32).tiny  # the minimum probability whose logarithm is used


@layer("Softmax")
class Softmax(Layer):
    """exp(x) / the sum of exp(x) over the axis."""

    may_be_in_place = True

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the axis."""
        axis = self.proto.softmax_param.axis
        self._axis = axis_in(self, axis, len(bottoms[0]), "softmax_param.axis")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the bottom."""
        return [bottoms[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        return [torch.softmax(bottoms[0], self._axis)]


@layer("SoftmaxWithLoss")
class SoftmaxWithLoss(LabelledLoss):
    """-log of the softmax of the label's class, summed and divided by the normaliser.

    A second top contains the probabilities; no gradient goes through it. Intel's: a third bottom
    with one weight per label, whose sum is the divisor; and `label_smoothing` e, which changes only
    the gradient, in TRAIN: the target is 1 - e for the label and e / classes for the others.
    """

    bottoms = (2, 3)
    tops = (1, 2)
    no_gradient_to: ClassVar[tuple[int, ...]] = (1, 2)

    def class_axis(self, rank: int) -> int:
        """Return the axis of the softmax."""
        return axis_in(self, self.proto.softmax_param.axis, rank, "softmax_param.axis")

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bottoms."""
        super().setup(bottoms)
        self._smoothing = float(self.proto.loss_param.label_smoothing)
        if not 0 <= self._smoothing < 1:
            raise self.error("loss_param.label_smoothing must be at least 0 and below 1")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of a scalar and of the scores."""
        for labels in bottoms[1:]:
            self.check_labels(bottoms[0], labels)
        return [(), bottoms[0]][: max(1, len(self.proto.top))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        with torch.no_grad():
            losses = self.losses(bottoms)
            total = losses.sum() / self._divisor
            return [total, self._probabilities.reshape(bottoms[0].shape)][
                : max(1, len(self.proto.top))
            ]

    def losses(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss of each position, 0 if ignored; keep the data for backward."""
        scores = bottoms[0]
        outer, classes, inner = self.split(tuple(scores.shape))
        self._probabilities = torch.softmax(scores.reshape(outer, classes, inner), 1)
        labels = bottoms[1].long().reshape(outer, inner)
        counted = self.normalizer.counted(labels)
        picked, self._at = self.pick(self._probabilities, labels, counted)
        losses = picked.clamp(min=_LEAST).log().neg()
        weights = counted
        if len(bottoms) > 2:
            weights = bottoms[2].reshape(outer, inner)
            weights = weights if counted is None else weights * counted
            self._divisor = self.per_process(weights.sum(), varies=True, least=_LEAST)
        else:
            self._divisor = self.normalizer.divisor(outer, inner, counted)
        self._weights = weights
        return losses if weights is None else losses * weights

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return (probability - target) / divisor."""
        nothing: list[torch.Tensor | None] = [None] * (len(bottoms) - 1)
        diff = top_diffs[0]
        if diff is None or not wanted[0]:
            return [None, *nothing]
        with torch.no_grad():
            gradient = self._away_from_target()
            if self._weights is not None:
                gradient.mul_(self._weights.unsqueeze(1))
            gradient.mul_(diff / self._divisor)
        return [gradient.reshape(bottoms[0].shape), *nothing]

    def _away_from_target(self) -> torch.Tensor:
        """Return probabilities minus targets, in a new tensor."""
        if not self._smoothing or self.context.phase != TRAIN:
            gradient = self._probabilities.clone()
            return gradient.scatter_add_(
                1, self._at, gradient.new_full((), -1.0).expand(self._at.shape)
            )
        classes = self._probabilities.shape[1]
        label, other = 1 - self._smoothing, self._smoothing / classes
        gradient = self._probabilities * (label + (classes - 1) * other) - other
        rest = gradient.new_full((), other - label).expand(self._at.shape)
        return gradient.scatter_add_(1, self._at, rest)


@layer("SoftmaxWithLossOHEM")
class SoftmaxWithLossOHEM(SoftmaxWithLoss):
    """SoftmaxWithLoss with a third top: the loss of each position, for choosing hard ones."""

    bottoms = (2, 2)
    tops = (1, 3)
    no_gradient_to = (1,)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of a scalar, the scores and the labels."""
        self.check_labels(bottoms[0], bottoms[1])
        return [(), bottoms[0], bottoms[1]][: max(1, len(self.proto.top))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        with torch.no_grad():
            losses = self.losses(bottoms)
            tops = [losses.sum() / self._divisor, self._probabilities.reshape(bottoms[0].shape)]
            tops.append(losses.reshape(bottoms[1].shape))
            return tops[: max(1, len(self.proto.top))]
