"""Passing on, dropping and keeping of blobs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, Share, layer
from sirtaki_caffe.layers.checks import filled


@layer("Split")
class Split(Layer):
    """The bottom, several times; its gradient is the sum of theirs."""

    tops = (1, None)
    keeps_means = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the bottom."""
        return [bottoms[0]] * len(self.proto.top)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return views."""
        return [bottoms[0].view_as(bottoms[0]) for _ in self.proto.top]

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return the sum."""
        diffs = [diff for diff in top_diffs if diff is not None]
        if not wanted[0] or not diffs:
            return [None]
        total = diffs[0]
        for diff in diffs[1:]:
            total = total + diff
        return [total]


@layer("Silence")
class Silence(Layer):
    """No tops: its bottoms are not outputs of the net."""

    bottoms = (1, None)
    tops = (0, 0)
    keeps_means = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return no shapes."""
        return []

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return nothing."""
        return []


@layer("Parameter")
class Parameter(Layer):
    """A learnable blob, zeros at first, as a top."""

    bottoms = (0, 0)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the blob."""
        parameter = self.proto.parameter_param
        if not parameter.HasField("shape") or any(dim < 0 for dim in parameter.shape.dim):
            raise self.error("parameter_param.shape is missing or has negative sizes")
        zeros = type(self.proto.bias_param.filler)(type="constant", value=0)
        shape = tuple(int(dim) for dim in parameter.shape.dim)
        self.params = [filled(self, shape, zeros, "parameter_param")]

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the blob."""
        return [tuple(self.params[0].data.shape)]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return that it is no part of the batch."""
        return [Share.SAME]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the blob itself."""
        blob = self.params[0].data
        return [blob.view_as(blob)]
