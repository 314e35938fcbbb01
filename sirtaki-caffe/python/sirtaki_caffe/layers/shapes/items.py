"""Selection of a batch's items."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, Share, layer


@layer("BatchReindex")
class BatchReindex(Layer):
    """The items of the first bottom in the order given by the second, possibly repeated."""

    bottoms = (2, 2)
    no_gradient_to = (1,)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return as many items as the second bottom has numbers."""
        if not bottoms[0] or len(bottoms[1]) != 1:
            raise self.error(
                f"its second bottom must be a list of items, not of shape {list(bottoms[1])}"
            )
        return [(bottoms[1][0], *bottoms[0][1:])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x, chosen = bottoms[0], bottoms[1].long()
        if chosen.numel() and (int(chosen.min()) < 0 or int(chosen.max()) >= x.shape[0]):
            raise self.error(
                f"it asks for items {int(chosen.min())} to {int(chosen.max())} of {x.shape[0]}"
            )
        return [x.index_select(0, chosen)]


@layer("Filter")
class Filter(Layer):
    """The items with a nonzero value in the last bottom, the selector.

    Before the first pass the tops have the shapes of the bottoms, as in Caffe.
    """

    bottoms = (2, None)
    tops = (1, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the number of tops."""
        if len(self.proto.top) != len(bottoms) - 1:
            raise self.error(
                f"it has {len(self.proto.top)} tops; it needs one for each bottom but the selector"
            )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the bottoms without the selector."""
        *data, selector = bottoms
        for index, shape in enumerate(data):
            if not shape or not selector or shape[0] != selector[0]:
                raise self.error(f"bottom {index} has not as many items as the selector")
        if math.prod(selector) != selector[0]:
            raise self.error(f"its selector must have one number an item, not {list(selector)}")
        return list(data)

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return chosen items: their number depends on the items."""
        return [Share.CHOSEN for _ in tops]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        *data, selector = bottoms
        chosen = selector.detach().reshape(-1).nonzero()[:, 0]
        return [x.index_select(0, chosen) for x in data]
