"""Local response normalisation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import rank_of

_WITHIN_CHANNEL = 1


@layer("LRN")
class LRN(Layer):
    """x * s^-beta, where s sums the squares of neighbours.

    ACROSS_CHANNELS: s = k + alpha / n * the sum over the n channels around. WITHIN_CHANNEL: s = 1 +
    alpha * the mean over n x n positions around, zeros beyond the border; k is unused.
    """

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        parameter = proto.lrn_param
        self._size = int(parameter.local_size)
        self._beta = float(parameter.beta)
        self._within = parameter.norm_region == _WITHIN_CHANNEL
        self._k = 1.0 if self._within else float(parameter.k)
        # The factor of the sum; the file's is that of the mean.
        places = self._size**2 if self._within else self._size
        self._alpha = float(parameter.alpha) / max(1, places)
        self._sums: torch.Tensor | None = None

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        if self._size % 2 == 0:
            raise self.error(f"lrn_param.local_size must be odd, not {self._size}")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the bottom."""
        rank_of(self, bottoms[0], 4)
        return [bottoms[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        with torch.no_grad():
            y, sums = torch.empty_like(x), torch.empty_like(x)
            for x_one, y_one, s_one in _pieces(x, y, sums):
                torch.mul(x_one, x_one, out=y_one)
                torch.mul(y_one, self._alpha, out=s_one).add_(self._k)
                self._add_neighbours(s_one, y_one, self._alpha)
                torch.mul(x_one, self._powers(s_one), out=y_one)
        self._sums = sums if x.requires_grad else None
        return [y]

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return the gradient: diff * s^-beta - 2 * alpha * beta * x * sum(diff * y / s)."""
        diff = top_diffs[0]
        if diff is None or self._sums is None or not wanted[0]:
            return [None]
        with torch.no_grad():
            gradient = torch.empty_like(bottoms[0])
            pieces = _pieces(bottoms[0], tops[0], diff, self._sums, gradient)
            for x_one, y_one, d_one, s_one, g_one in pieces:
                shares = (d_one * y_one).div_(s_one)
                g_one.copy_(shares)
                self._add_neighbours(g_one, shares, 1.0)
                g_one.mul_(x_one).mul_(-2 * self._alpha * self._beta)
                g_one.addcmul_(d_one, self._powers(s_one))
        return [gradient]

    def _add_neighbours(self, sums: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        """Add to each element its neighbours in another tensor, times a factor, without itself."""
        half = self._size // 2
        if self._within:
            # The sum of a square is the sum over rows of the sums over columns.
            columns = x.clone()
            _add_shifted(columns, x, half, 2, 1.0)
            sums.add_(columns - x, alpha=factor)
            _add_shifted(sums, columns, half, 3, factor)
        else:
            _add_shifted(sums, x, half, 1, factor)

    def _powers(self, sums: torch.Tensor) -> torch.Tensor:
        """Return the power -beta, by roots for the usual 0.75, which is much faster."""
        if self._beta == 0.75:
            root = sums.rsqrt()
            return root.sqrt().mul_(root)
        return sums.pow(-self._beta)


def _pieces(*tensors: torch.Tensor) -> Iterable[tuple[torch.Tensor, ...]]:
    """Return one item at a time, to fit into the processor's cache; all at once on accelerators."""
    if tensors[0].device.type != "cpu":
        return [tensors]
    return zip(*(tensor.split(1) for tensor in tensors), strict=True)


def _add_shifted(sums: torch.Tensor, x: torch.Tensor, most: int, axis: int, factor: float) -> None:
    """Add the elements up to `most` positions before and after."""
    size = x.shape[axis]
    for places in range(1, min(most, size - 1) + 1):
        front, back = (0, size - places), (places, size - places)
        sums.narrow(axis, *back).add_(x.narrow(axis, *front), alpha=factor)
        sums.narrow(axis, *front).add_(x.narrow(axis, *back), alpha=factor)
