"""Products and sums with a blob that covers some of the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import axis_in, filled


class _Broadcasting(Layer):
    """A bottom, and a blob for its axes from `axis` on: learnt, or the second bottom."""

    bottoms = (1, 2)
    may_be_in_place = True
    field = ""

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._parameter = getattr(proto, self.field)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Determine the axes that the blob covers; create it, unless it is a bottom."""
        shape = bottoms[0]
        if len(bottoms) > 1:
            self._axis = 0
            if bottoms[1]:
                self._axis = axis_in(self, self._parameter.axis, len(shape), f"{self.field}.axis")
            return
        number = self._parameter.num_axes
        if number < -1:
            raise self.error(f"{self.field}.num_axes must be at least -1, not {number}")
        self._axis = 0
        if number:
            self._axis = axis_in(self, self._parameter.axis, len(shape), f"{self.field}.axis")
        end = len(shape) if number == -1 else self._axis + number
        if end > len(shape):
            raise self.error(
                f"{self.field}.num_axes {number} from axis {self._axis} on goes beyond the "
                f"{len(shape)} axes of its bottom"
            )
        filler = self._parameter.filler
        if not self._parameter.HasField("filler"):
            filler = type(filler)(type="constant", value=self.neutral)
        self.params = [filled(self, shape[self._axis : end], filler, f"{self.field}.filler")]

    #: The learnt blob's initial value without a filler.
    neutral = 0.0

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the first bottom."""
        shape = bottoms[0]
        own = bottoms[1] if len(bottoms) > 1 else tuple(self.params[0].data.shape)
        if tuple(shape[self._axis : self._axis + len(own)]) != tuple(own):
            raise self.error(
                f"a blob of shape {list(own)} does not fit a bottom of shape {list(shape)} from "
                f"axis {self._axis} on"
            )
        return [shape]

    def _spread(self, blob: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the blob, with axes of size 1 appended."""
        return blob.reshape(*blob.shape, *[1] * (x.dim() - self._axis - blob.dim()))


@layer("Scale")
class Scale(_Broadcasting):
    """x * scale, and a learnt shift with `bias_term`."""

    field = "scale_param"
    neutral = 1.0

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the scale, unless it is a bottom, and the shift."""
        super().setup(bottoms)
        if self._parameter.bias_term:
            shape = bottoms[1] if len(bottoms) > 1 else tuple(self.params[0].data.shape)
            filler = self._parameter.bias_filler
            self.params.append(filled(self, shape, filler, "scale_param.bias_filler"))

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        scale = self._spread(bottoms[1] if len(bottoms) > 1 else self.params[0].data, x)
        if not self._parameter.bias_term:
            return [x * scale]
        return [torch.addcmul(self._spread(self.params[-1].data, x), x, scale)]


@layer("Bias")
class Bias(_Broadcasting):
    """x + shift."""

    field = "bias_param"

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        return [x + self._spread(bottoms[1] if len(bottoms) > 1 else self.params[0].data, x)]


@layer("Axpy")
class Axpy(Layer):
    """Intel's a * x + y, with one a for each channel of each item."""

    bottoms = (3, 3)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of x."""
        a, x, y = bottoms
        if len(a) < 2 or math.prod(a) != math.prod(a[:2]) or tuple(a[:2]) != tuple(x[:2]):
            raise self.error(
                f"its first bottom must be (items, channels) of the second, {list(x[:2])}, "
                f"not {list(a)}"
            )
        if tuple(x) != tuple(y):
            raise self.error(f"its bottoms 1 and 2 differ in shape: {list(x)} and {list(y)}")
        return [x]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        a, x, y = bottoms
        return [a.reshape(*a.shape[:2], *[1] * (x.dim() - 2)) * x + y]
