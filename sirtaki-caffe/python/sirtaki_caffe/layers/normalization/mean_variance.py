"""Normalisation of each item separately."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.activations import Elementwise
from sirtaki_caffe.layers.base import Shape, layer
from sirtaki_caffe.layers.checks import filled


@layer("MVN")
class MVN(Elementwise):
    """(x - mean) / (deviation + eps) over a plane, or over an item with `across_channels`."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class; a deviation of zero has no gradient."""
        parameter = self.proto.mvn_param
        rows = x.flatten(1) if parameter.across_channels else x.reshape(*x.shape[:2], -1)
        centred = rows - rows.mean(-1, keepdim=True)
        if parameter.normalize_variance:
            variance = centred.square().mean(-1, keepdim=True)
            tiny = torch.finfo(x.dtype).tiny
            centred = centred / (variance.clamp(min=tiny).sqrt() + parameter.eps)
        return centred.view(x.shape)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bottom."""
        if len(bottoms[0]) < 2:
            raise self.error("its bottom needs an axis of channels")


@layer("Normalize")
class Normalize(Elementwise):
    """Intel's division by the Euclidean norm, times a learnt scale.

    The norm is that of an item, or of the channels at each position without `across_spatial`; the
    scale is one number, or one per channel without `channel_shared`.
    """

    may_be_in_place = False

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the scale, 1 without a filler."""
        parameter = self.proto.norm_param
        if len(bottoms[0]) < 2:
            raise self.error("its bottom needs an axis of channels")
        filler = parameter.scale_filler
        if not parameter.HasField("scale_filler"):
            filler = type(filler)(type="constant", value=1)
        shape = () if parameter.channel_shared else (bottoms[0][1],)
        self.params = [filled(self, shape, filler, "norm_param.scale_filler")]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.mul(x / self._norm(x), self._scale(x))

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return Caffe's gradient, which omits the scales where the norm's gradient is summed."""
        given = super().backward(bottoms, tops, top_diffs, [False])
        diff = top_diffs[0]
        if diff is None or not wanted[0]:
            return given
        with torch.no_grad():
            x = bottoms[0]
            norm = self._norm(x)
            along = (diff * x).sum(self._axes(x), keepdim=True) / norm.square()
            return [self._scale(x) * (diff - x * along) / norm]

    def _axes(self, x: torch.Tensor) -> tuple[int, ...]:
        return tuple(range(1, x.dim())) if self.proto.norm_param.across_spatial else (1,)

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        squares = x.square().sum(self._axes(x), keepdim=True)
        return (squares + float(self.proto.norm_param.eps)).sqrt()

    def _scale(self, x: torch.Tensor) -> torch.Tensor:
        return self.params[0].data.reshape(-1, *[1] * (x.dim() - 2))
