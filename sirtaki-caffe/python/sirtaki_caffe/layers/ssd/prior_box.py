"""PriorBox: the default boxes of a detector's predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, Share, layer
from sirtaki_caffe.layers.checks import rank_of


@layer("PriorBox")
class PriorBox(Layer):
    """The boxes at each position of the first bottom, in the image, and a row of variances.

    The top has the shape (1, 2, height * width * boxes * 4). The second bottom is the image, which
    determines the size. Sizes are rounded to integers, as in Caffe.
    """

    bottoms = (2, 2)
    no_gradient_to = (0, 1)
    references = (0, 1)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        for shape in bottoms:
            rank_of(self, shape, 4)
        p = self.proto.prior_box_param
        if not p.min_size or any(size <= 0 for size in p.min_size):
            raise self.error("prior_box_param.min_size must be given and be positive")
        if p.max_size and len(p.max_size) != len(p.min_size):
            raise self.error("prior_box_param needs as many max_size as min_size, or none")
        for low, high in zip(p.min_size, p.max_size, strict=False):
            if high <= low:
                raise self.error(f"prior_box_param.max_size {high:g} must be above {low:g}")
        if any(ratio <= 0 for ratio in p.aspect_ratio):
            raise self.error("prior_box_param.aspect_ratio must be positive")
        self._ratios = self._all_ratios()
        if len(p.variance) not in (0, 1, 4) or any(v <= 0 for v in p.variance):
            raise self.error("prior_box_param.variance must be given 0, 1 or 4 times, above 0")
        given = list(p.variance) or [0.1]
        self._variances = given * 4 if len(given) == 1 else given
        self._image = self._pair("img_size", "img_h", "img_w")
        self._steps = self._pair("step", "step_h", "step_w")

    def _all_ratios(self) -> list[float]:
        p = self.proto.prior_box_param
        found = [1.0]
        for ratio in p.aspect_ratio:
            if all(abs(ratio - known) >= 1e-6 for known in found):
                found += [ratio, 1 / ratio] if p.flip else [ratio]
        return found

    def _pair(self, both: str, high: str, wide: str) -> tuple[float, float] | None:
        """Return a height and a width, given together or separately; None: neither."""
        p = self.proto.prior_box_param
        if not any(p.HasField(name) for name in (both, high, wide)):
            return None
        if p.HasField(both):
            if p.HasField(high) or p.HasField(wide):
                raise self.error(f"prior_box_param: either {both}, or {high} and {wide}")
            found = (getattr(p, both), getattr(p, both))
        else:
            found = (getattr(p, high), getattr(p, wide))
        if min(found) <= 0:
            raise self.error(f"prior_box_param: {high} and {wide}, or {both}, must be positive")
        return found

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        height, width = bottoms[0][2:]
        return [(1, 2, height * width * len(self._sides()) * 4)]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return that it is the same in all processes."""
        return [Share.SAME for _ in tops]

    def _sides(self) -> list[tuple[float, float]]:
        """Return the width and height of the boxes at a position, in pixels."""
        p = self.proto.prior_box_param
        found: list[tuple[float, float]] = []
        for index, size in enumerate(p.min_size):
            side = float(int(size))
            found.append((side, side))
            if p.max_size:
                mean = math.sqrt(side * int(p.max_size[index]))
                found.append((mean, mean))
            roots = [math.sqrt(ratio) for ratio in self._ratios[1:]]
            found += [(side * root, side / root) for root in roots]
        return found

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        (height, width), image = bottoms[0].shape[2:], bottoms[1].shape[2:]
        image_height, image_width = self._image or image
        step_h, step_w = self._steps or (image_height / height, image_width / width)
        offset = self.proto.prior_box_param.offset
        sides = torch.tensor(self._sides(), dtype=torch.float64)
        y = (torch.arange(height, dtype=torch.float64) + offset) * step_h
        x = (torch.arange(width, dtype=torch.float64) + offset) * step_w
        centres = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)[:, :, None, :]
        corners = torch.cat([centres - sides / 2, centres + sides / 2], -1)
        corners /= torch.tensor([image_width, image_height] * 2, dtype=torch.float64)
        if self.proto.prior_box_param.clip:
            corners.clamp_(0, 1)
        variances = torch.tensor(self._variances, dtype=torch.float64).expand_as(corners)
        both = torch.stack([corners.reshape(-1), variances.reshape(-1)])
        return [both[None].to(bottoms[0].dtype).to(bottoms[0].device)]
