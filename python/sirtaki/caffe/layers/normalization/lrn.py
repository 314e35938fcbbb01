"""Local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from sirtaki.caffe.layers.base import Layer, Shape, layer
from sirtaki.caffe.layers.checks import rank_of

_WITHIN_CHANNEL = 1


@layer("LRN")
class LRN(Layer):
    """x * s^-beta, where s sums the squares of neighbours.

    ACROSS_CHANNELS: s = k + alpha / n * the sum over the n channels around. WITHIN_CHANNEL:
    s = 1 + alpha * the mean over n x n places around, zeros beyond the border; k is not used.
    """

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        parameter = proto.lrn_param
        self._size = int(parameter.local_size)
        self._beta = float(parameter.beta)
        self._within = parameter.norm_region == _WITHIN_CHANNEL
        self._k = 1.0 if self._within else float(parameter.k)
        # Of the mean that pooling makes; the sum of n divided by n is one too.
        self._alpha = float(parameter.alpha)
        self._sums: torch.Tensor | None = None
        self._powers: torch.Tensor | None = None

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        if self._size % 2 == 0:
            raise self.error(f"lrn_param.local_size must be odd, not {self._size}")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """That of the bottom."""
        rank_of(self, bottoms[0], 4)
        return [bottoms[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """As the class says."""
        x = bottoms[0]
        with torch.no_grad():
            sums = self._around(x * x).mul_(self._alpha).add_(self._k)
            powers = _negative_power(sums, self._beta)
            self._sums, self._powers = sums, powers
            return [x * powers]

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """By the formula diff * s^-beta - 2 * alpha * beta * x * mean(diff * y / s)."""
        diff = top_diffs[0]
        if diff is None or not wanted[0]:
            return [None]
        assert self._sums is not None
        assert self._powers is not None
        with torch.no_grad():
            shares = self._around((diff * tops[0]).div_(self._sums))
            shares.mul_(bottoms[0]).mul_(-2 * self._alpha * self._beta)
            return [shares.addcmul_(diff, self._powers)]

    def _around(self, x: torch.Tensor) -> torch.Tensor:
        """The mean of neighbours, zeros beyond the border; a new tensor."""
        size, half = self._size, self._size // 2
        if self._within:
            # A border wider than half a window is never needed; PyTorch counts it as zeros.
            return F.avg_pool2d(x, size, 1, half)
        items, channels, height, width = x.shape
        # The planes as channels of a channels_last image of one column: pooled without a copy.
        columns = x.reshape(items, channels, height * width, 1).permute(0, 2, 1, 3)
        means = F.avg_pool2d(columns, (size, 1), 1, (half, 0))
        return means.permute(0, 2, 1, 3).reshape(x.shape)


def _negative_power(x: torch.Tensor, beta: float) -> torch.Tensor:
    """The power -beta; by roots where beta is the usual 0.75, which is several times as fast."""
    if beta == 0.75:
        root = x.rsqrt()
        return root.sqrt().mul_(root)
    return x.pow(-beta)
