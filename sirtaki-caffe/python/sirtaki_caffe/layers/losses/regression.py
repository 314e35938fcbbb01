"""Losses of distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import same_counts
from sirtaki_caffe.layers.loss_normalizer import LossNormalizer


@layer("EuclideanLoss")
class EuclideanLoss(Layer):
    """The sum of (a - b)^2, divided by twice the batch size."""

    bottoms = (2, 2)
    is_loss = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        same_counts(self, bottoms)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        a, b = bottoms
        items = self.per_process(a.shape[0] if a.dim() else 1)
        return [(a - b.reshape(a.shape)).square().sum() / (2 * items)]


@layer("ContrastiveLoss")
class ContrastiveLoss(Layer):
    """Similar pairs: d^2; others: max(margin - d, 0)^2; summed, divided by twice the batch size.

    `legacy_version`: max(margin - d^2, 0). The gradient divides by d + 1e-4, as in Caffe.
    """

    bottoms = (3, 3)
    is_loss = True
    no_gradient_to = (2,)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        a, b, similar = bottoms
        if tuple(a) != tuple(b) or len(a) < 2 or math.prod(a) != math.prod(a[:2]):
            raise self.error(
                f"its bottoms 0 and 1 must be vectors of one shape, not {list(a)} and {list(b)}"
            )
        if math.prod(similar) != a[0]:
            raise self.error(f"{a[0]} pairs need as many numbers in bottom 2, not {list(similar)}")
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        with torch.no_grad():
            squares = (bottoms[0] - bottoms[1]).flatten(1).square().sum(1)
            similar = bottoms[2].long().reshape(-1) != 0
            parameter = self.proto.contrastive_loss_param
            if parameter.legacy_version:
                apart = (parameter.margin - squares).clamp(min=0)
            else:
                apart = (parameter.margin - squares.sqrt()).clamp(min=0).square()
            self._items = self.per_process(len(squares))
            return [squares.where(similar, apart).sum() / (2 * self._items)]

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return one vector for each pair, with both signs."""
        diff = top_diffs[0]
        if diff is None:
            return [None, None, None]
        parameter = self.proto.contrastive_loss_param
        with torch.no_grad():
            between = (bottoms[0] - bottoms[1]).flatten(1)
            squares = between.square().sum(1)
            if parameter.legacy_version:
                apart = -(squares < parameter.margin).to(squares.dtype)
            else:
                distances = squares.sqrt()
                apart = -(parameter.margin - distances).clamp(min=0) / (distances + 1e-4)
            factors = torch.ones_like(apart).where(bottoms[2].long().reshape(-1) != 0, apart)
            gradient = (between * factors[:, None]).reshape(bottoms[0].shape)
            gradient = gradient * (diff / self._items)
        return [
            gradient if wanted[0] else None,
            -gradient if wanted[1] else None,
            None,
        ]


@layer("SmoothL1Loss")
class SmoothL1Loss(Layer):
    """With d = w_in * (a - b): sigma^2 d^2 / 2 below 1 / sigma^2, else |d| - 1 / (2 sigma^2).

    It is multiplied by w_out, summed, and divided by the batch size. The bottoms are a, b, w_in and
    w_out; the last two are optional.
    """

    bottoms = (2, 4)
    is_loss = True
    no_gradient_to: ClassVar[tuple[int, ...]] = (2, 3)
    references: ClassVar[tuple[int, ...]] = (2, 3)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        if self.proto.smooth_l1_loss_param.sigma <= 0:
            raise self.error("smooth_l1_loss_param.sigma must be positive")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        same_counts(self, bottoms)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        return [self.losses(bottoms).sum() / self.per_process(bottoms[0].shape[0])]

    def losses(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss of each element."""
        d = bottoms[0] - bottoms[1].reshape(bottoms[0].shape)
        if len(bottoms) > 2:
            d = d * bottoms[2].reshape(d.shape)
        square = float(self.proto.smooth_l1_loss_param.sigma) ** 2
        size = d.abs()
        losses = (0.5 * square * d * d).where(size < 1 / square, size - 0.5 / square)
        return losses * bottoms[3].reshape(d.shape) if len(bottoms) > 3 else losses


@layer("SmoothL1LossOHEM")
class SmoothL1LossOHEM(SmoothL1Loss):
    """SmoothL1Loss divided by the normaliser of `loss_param`.

    A second top has the loss of each item and position, for choosing hard ones.
    """

    tops = (1, 2)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        super().setup(bottoms)
        if len(bottoms[0]) < 2:
            raise self.error("its bottoms need an axis of channels")
        self._normalizer = LossNormalizer(self)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of a scalar and of the bottoms with one channel."""
        same_counts(self, bottoms)
        items, _, *places = bottoms[0]
        return [(), (items, 1, *places)][: max(1, len(self.proto.top))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        losses = self.losses(bottoms)
        places = math.prod(losses.shape[2:])
        loss = losses.sum() / self._normalizer.divisor(losses.shape[0], places, None)
        return [loss, losses.detach().sum(1, keepdim=True)][: max(1, len(self.proto.top))]
