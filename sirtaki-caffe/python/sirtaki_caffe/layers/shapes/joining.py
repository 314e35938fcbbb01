"""Joining and cutting of blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import axis_in, same_shapes

_PROD = 0
_SUM = 1


@layer("Eltwise")
class Eltwise(Layer):
    """Sum (with coefficients), product or maximum of blobs of one shape.

    Of equal maxima, the second of the first two gets the gradient, and the first of the others.
    `stable_prod_grad` has no effect: the gradient of a product is always that of products.
    """

    bottoms = (2, None)
    may_be_in_place = True

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the coefficients."""
        parameter = self.proto.eltwise_param
        self.keeps_means = parameter.operation == _SUM
        self._coefficients = [float(c) for c in parameter.coeff]
        if not self._coefficients:
            return
        if parameter.operation != _SUM:
            raise self.error("eltwise_param.coeff is for operation SUM")
        if len(self._coefficients) != len(bottoms):
            raise self.error(
                f"eltwise_param.coeff is given {len(self._coefficients)} times for "
                f"{len(bottoms)} bottoms"
            )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the bottoms."""
        same_shapes(self, bottoms)
        return [bottoms[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        operation = self.proto.eltwise_param.operation
        if operation == _SUM and self._coefficients:
            y = bottoms[0] * self._coefficients[0]
            for x, coefficient in zip(bottoms[1:], self._coefficients[1:], strict=True):
                y = torch.add(y, x, alpha=coefficient)
            return [y]
        y = bottoms[0]
        for index, x in enumerate(bottoms[1:]):
            if operation == _SUM:
                y = y + x
            elif operation == _PROD:
                y = y * x
            else:
                y = torch.where(y > x if index == 0 else y >= x, y, x)
        return [y]


def _one_axis(owner: Layer, parameter: Any, old: str, rank: int, field: str) -> int:
    """Return the field `axis`, or the older field that it replaced."""
    if parameter.HasField(old):
        if parameter.HasField("axis"):
            raise owner.error(f"{field} has both axis and {old}; keep axis")
        if getattr(parameter, old) >= rank:
            raise owner.error(
                f"{field}.{old} is {getattr(parameter, old)}, but its bottom has {rank} axes"
            )
        return int(getattr(parameter, old))
    return axis_in(owner, parameter.axis, rank, f"{field}.axis")


@layer("Concat")
class Concat(Layer):
    """Concatenation of blobs along an axis."""

    bottoms = (1, None)
    keeps_means = True

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the axis."""
        self._axis = _one_axis(
            self, self.proto.concat_param, "concat_dim", len(bottoms[0]), "concat_param"
        )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the sum of the sizes along the axis; the others must be equal."""
        axis = self._axis
        first = bottoms[0]
        for index, shape in enumerate(bottoms):
            if (*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) or len(
                shape
            ) != len(first):
                raise self.error(
                    f"bottoms 0 and {index} must have equal sizes on all axes but {axis}, "
                    f"not {list(first)} and {list(shape)}"
                )
        return [(*first[:axis], sum(s[axis] for s in bottoms), *first[axis + 1 :])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        if len(bottoms) == 1:
            return [bottoms[0].view_as(bottoms[0])]
        return [torch.cat(list(bottoms), self._axis)]


@layer("Slice")
class Slice(Layer):
    """A blob cut along an axis, at the slice points or into equal parts."""

    tops = (1, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the axis and the points."""
        parameter = self.proto.slice_param
        self._axis = _one_axis(self, parameter, "slice_dim", len(bottoms[0]), "slice_param")
        points = [int(p) for p in parameter.slice_point]
        if points and len(points) != len(self.proto.top) - 1:
            raise self.error(
                f"slice_param.slice_point is given {len(points)} times, but "
                f"{len(self.proto.top)} tops need {len(self.proto.top) - 1}"
            )
        if any(b <= a for a, b in zip([0, *points], points, strict=False)):
            raise self.error("slice_param.slice_point must be positive and increase")
        self._points = points

    def _sizes(self, size: int) -> list[int]:
        """Return the sizes of the parts."""
        tops = len(self.proto.top)
        if self._points:
            if self._points[-1] >= size:
                raise self.error(
                    f"slice_param.slice_point {self._points[-1]} is beyond the {size} elements of "
                    f"axis {self._axis}"
                )
            return [b - a for a, b in zip([0, *self._points], [*self._points, size], strict=True)]
        if size % tops:
            raise self.error(f"{tops} equal parts of the {size} elements of axis {self._axis}")
        return [size // tops] * tops

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the parts."""
        shape, axis = bottoms[0], self._axis
        return [(*shape[:axis], s, *shape[axis + 1 :]) for s in self._sizes(shape[axis])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        return list(bottoms[0].split(self._sizes(bottoms[0].shape[self._axis]), self._axis))
