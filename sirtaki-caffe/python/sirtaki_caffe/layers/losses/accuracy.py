"""Accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Shape, Share, layer
from sirtaki_caffe.layers.checks import axis_in
from sirtaki_caffe.layers.losses.labels import LabelledLoss


@layer("Accuracy")
class Accuracy(LabelledLoss):
    """The fraction of the labels whose class is among the `top_k` best, without ignored ones.

    A class with an equal score counts as better. A second top has the fraction for each class, 0
    for classes that do not occur.
    """

    tops = (1, 2)
    is_loss = False
    no_gradient_to = (0, 1)

    def class_axis(self, rank: int) -> int:
        """Return the layer's own field."""
        return axis_in(self, self.proto.accuracy_param.axis, rank, "accuracy_param.axis")

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        super().setup(bottoms)
        parameter = self.proto.accuracy_param
        self._best = int(parameter.top_k)
        self._ignored = parameter.ignore_label if parameter.HasField("ignore_label") else None

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of a scalar and of one number per class."""
        self.check_labels(bottoms[0], bottoms[1])
        classes = self.split(bottoms[0])[1]
        if not 0 < self._best <= classes:
            raise self.error(
                f"accuracy_param.top_k must be between 1 and the {classes} classes, "
                f"not {self._best}"
            )
        return [(), (classes,)][: len(self.proto.top)]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return means over the items."""
        return [min(max(self.shares), Share.MEAN) for _ in tops]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        with torch.no_grad():
            outer, classes, inner = self.split(tuple(bottoms[0].shape))
            scores = bottoms[0].reshape(outer, classes, inner)
            labels = bottoms[1].long().reshape(outer, inner)
            counted = None if self._ignored is None else labels != self._ignored
            own, at = self.pick(scores, labels, counted)
            right = (scores >= own.unsqueeze(1)).sum(1) <= self._best
            if counted is not None:
                right = right & counted
            if counted is None:
                total = self.per_process(labels.numel())
            else:
                total = self.per_process(counted.sum(), varies=True)
            tops = [right.sum().to(scores.dtype) / total]
            if len(self.proto.top) > 1:
                tops.append(self._by_class(right, at, counted, scores))
            return tops

    def _by_class(
        self,
        right: torch.Tensor,
        at: torch.Tensor,
        counted: torch.Tensor | None,
        scores: torch.Tensor,
    ) -> torch.Tensor:
        ones = torch.ones_like(right) if counted is None else counted
        zeros = scores.new_zeros(scores.shape[1])
        of_class = zeros.index_add(0, at.flatten(), ones.flatten().to(scores.dtype))
        hits = zeros.index_add(0, at.flatten(), right.flatten().to(scores.dtype))
        return hits / of_class.clamp(min=1)
