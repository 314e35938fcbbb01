"""Dropout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.activations import Elementwise
from sirtaki_caffe.layers.base import Shape, layer
from sirtaki_caffe.proto.schema import TRAIN


@layer("Dropout")
class Dropout(Elementwise):
    """In TRAIN, elements are zero with probability `dropout_ratio` and the others scaled up."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the ratio."""
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio must be at least 0 and below 1, not {self.ratio:g}")

    @property
    def ratio(self) -> float:
        """The probability of zero."""
        return float(self.proto.dropout_param.dropout_ratio)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        if self.context.phase != TRAIN or self.ratio == 0:
            return x.view_as(x)
        random = self.context.random
        keep = 1 - self.ratio
        mask = torch.empty(self.mask_shape(x), dtype=x.dtype, device=random.device)
        mask.bernoulli_(keep, generator=random).div_(keep)
        return x * mask.to(x.device)

    def mask_shape(self, x: torch.Tensor) -> Shape:
        """One random number an element."""
        return tuple(x.shape)


@layer("SpatialDropout")
class SpatialDropout(Dropout):
    """Intel's Dropout of whole channels."""

    @property
    def ratio(self) -> float:
        """The probability of zero."""
        return float(self.proto.spatial_dropout_param.dropout_ratio)

    def mask_shape(self, x: torch.Tensor) -> Shape:
        """One random number a channel of an item."""
        return tuple(x.shape[:2]) + (1,) * (x.dim() - 2)
