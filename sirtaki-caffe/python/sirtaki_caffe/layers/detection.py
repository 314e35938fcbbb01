"""Layers of region-based detectors (R-CNN, R-FCN), in PyTorch's operations.

A region is (image, left, top, right, bottom) in pixels of the image, inclusive. Window boundaries
are computed in integers where the original code rounds products of floats, which differs in the
last place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import positive, rank_of


def _regions(owner: Layer, shape: Shape) -> int:
    """Return the number of regions."""
    if not shape or math.prod(shape) != 5 * shape[0]:
        raise owner.error(f"its regions must be (regions, 5), not {list(shape)}")
    return shape[0]


def _images(owner: Layer, rois: torch.Tensor, images: int) -> list[int]:
    """Return the image of each region."""
    found = [int(image) for image in rois[:, 0].tolist()]
    if any(not 0 <= image < images for image in found):
        raise owner.error(f"its regions name images outside 0 to {images - 1}")
    return found


def _rounded(values: torch.Tensor) -> torch.Tensor:
    """Round halves away from zero, like C."""
    return (values.abs() + 0.5).floor() * values.sign()


@layer("ROIPooling")
class ROIPooling(Layer):
    """The maximum of each of pooled_h x pooled_w windows of each region; 0 if one is empty."""

    bottoms = (2, 2)
    no_gradient_to = (1,)
    references = (1,)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        rank_of(self, bottoms[0], 4)
        parameter = self.proto.roi_pooling_param
        self._height = positive(self, parameter.pooled_h, "roi_pooling_param.pooled_h")
        self._width = positive(self, parameter.pooled_w, "roi_pooling_param.pooled_w")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        regions = _regions(self, bottoms[1])
        return [(regions, bottoms[0][1], self._height, self._width)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x, rois = bottoms[0], bottoms[1].detach().reshape(-1, 5)
        images = _images(self, rois, x.shape[0])
        places = _rounded(rois[:, 1:] * self.proto.roi_pooling_param.spatial_scale)
        pooled = [
            self._one(x[image], [int(p) for p in place])
            for image, place in zip(images, places.tolist(), strict=True)
        ]
        if not pooled:
            return [x.new_zeros(0, x.shape[1], self._height, self._width)]
        return [torch.stack(pooled)]

    def _one(self, x: torch.Tensor, place: list[int]) -> torch.Tensor:
        left, top, right, bottom = place
        rows = _bounds(top, bottom, self._height, x.shape[1])
        columns = _bounds(left, right, self._width, x.shape[2])
        pooled = [
            x[:, a:b, c:d].amax((1, 2)) if a < b and c < d else x.new_zeros(x.shape[0])
            for a, b in rows
            for c, d in columns
        ]
        return torch.stack(pooled, 1).view(x.shape[0], self._height, self._width)


def _bounds(first: int, last: int, windows: int, size: int) -> list[tuple[int, int]]:
    """Return the begin and end of each window, within an axis of a given size."""
    length = max(last - first + 1, 1)
    return [
        (
            min(max(at * length // windows + first, 0), size),
            min(max(-(-(at + 1) * length // windows) + first, 0), size),
        )
        for at in range(windows)
    ]


@layer("PSROIPooling")
class PSROIPooling(Layer):
    """The mean of each of group_size x group_size windows, each with its own channels.

    The window (row, column) of a class reads channel (class, row, column) of the bottom. An empty
    window gives 0.
    """

    bottoms = (2, 2)
    no_gradient_to = (1,)
    references = (1,)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        rank_of(self, bottoms[0], 4)
        parameter = self.proto.psroi_pooling_param
        self._outputs = positive(self, parameter.output_dim, "psroi_pooling_param.output_dim")
        self._group = positive(self, parameter.group_size, "psroi_pooling_param.group_size")
        if parameter.spatial_scale <= 0:
            raise self.error("psroi_pooling_param.spatial_scale must be given and be positive")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        needed = self._outputs * self._group**2
        if bottoms[0][1] != needed:
            raise self.error(f"its bottom must have {needed} channels, not {bottoms[0][1]}")
        regions = _regions(self, bottoms[1])
        return [(regions, self._outputs, self._group, self._group)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Multiply by masks of the rows and of the columns of each window."""
        x, rois = bottoms[0], bottoms[1].detach().reshape(-1, 5)
        images = torch.tensor(_images(self, rois, x.shape[0]), device=x.device)
        scale = self.proto.psroi_pooling_param.spatial_scale
        first = _rounded(rois[:, 1:3]) * scale
        last = (_rounded(rois[:, 3:5]) + 1) * scale
        rows = self._masks(first[:, 1], last[:, 1], x.shape[2])
        columns = self._masks(first[:, 0], last[:, 0], x.shape[3])
        maps = x.reshape(x.shape[0], self._outputs, self._group, self._group, *x.shape[2:])
        pooled = x.new_zeros(len(rois), self._outputs, self._group, self._group)
        for image in sorted(set(images.tolist())):
            own = (images == image).nonzero()[:, 0]
            lines = torch.einsum("dijyx,rjx->rdijy", maps[image], columns[own])
            sums = torch.einsum("rdijy,riy->rdij", lines, rows[own])
            pooled = pooled.index_copy(0, own, sums)
        area = rows.sum(2)[:, None, :, None] * columns.sum(2)[:, None, None, :]
        return [pooled / area.clamp(min=1)]

    def _masks(self, first: torch.Tensor, last: torch.Tensor, size: int) -> torch.Tensor:
        """Return (regions, windows, size): 1 where an element belongs to a window."""
        step = ((last - first).clamp(min=0.1) / self._group)[:, None]
        at = torch.arange(self._group, device=first.device, dtype=first.dtype)
        begin = (at * step + first[:, None]).floor()[..., None]
        end = ((at + 1) * step + first[:, None]).ceil()[..., None]
        places = torch.arange(size, device=first.device, dtype=first.dtype)
        return ((places >= begin) & (places < end)).to(first.dtype)


@layer("BoxAnnotatorOHEM")
class BoxAnnotatorOHEM(Layer):
    """Keeps the labels and weights of the roi_per_img regions per image with the largest loss.

    Bottoms: regions, their losses, labels and weights of boxes. For other regions, labels become
    ignore_label and weights 0.
    """

    bottoms = (4, 4)
    tops = (2, 2)
    no_gradient_to = (0, 1, 2, 3)
    references = (0, 1, 2, 3)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        parameter = self.proto.box_annotator_ohem_param
        positive(self, parameter.roi_per_img, "box_annotator_ohem_param.roi_per_img")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of labels and weights."""
        rois, losses, labels, weights = bottoms
        regions = _regions(self, rois)
        if math.prod(losses) != regions or math.prod(labels) != regions or weights[0] != regions:
            raise self.error(f"its bottoms must have {regions} regions each")
        return [labels, weights]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        rois, losses, labels, weights = (bottom.detach() for bottom in bottoms)
        parameter = self.proto.box_annotator_ohem_param
        images = rois.reshape(-1, 5)[:, 0].long().tolist()
        left = dict.fromkeys(images, int(parameter.roi_per_img))
        kept = torch.zeros(len(images), dtype=torch.bool)
        for region in losses.reshape(-1).sort(descending=True, stable=True)[1].tolist():
            if left[images[region]] > 0:
                left[images[region]] -= 1
                kept[region] = True
        kept = kept.to(labels.device)
        hard = labels.where(kept.view(labels.shape), float(parameter.ignore_label))
        return [hard, weights * kept.view(-1, *[1] * (weights.dim() - 1)).to(weights.dtype)]
