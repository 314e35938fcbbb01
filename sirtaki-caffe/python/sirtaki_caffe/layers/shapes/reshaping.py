"""The same elements in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import axis_in, positive, rank_of


@layer("Flatten")
class Flatten(Layer):
    """Merges the axes from `axis` to `end_axis`."""

    keeps_means = True

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the axes."""
        parameter, rank = self.proto.flatten_param, len(bottoms[0])
        self._axis = axis_in(self, parameter.axis, rank, "flatten_param.axis")
        self._end = axis_in(self, parameter.end_axis, rank, "flatten_param.end_axis")
        if self._end < self._axis:
            raise self.error("flatten_param.end_axis is before axis")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        shape, axis, end = bottoms[0], self._axis, self._end + 1
        return [(*shape[:axis], math.prod(shape[axis:end]), *shape[end:])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        y = x.flatten(self._axis, self._end)
        return [y.view_as(y) if y is x else y]


@layer("Reshape")
class Reshape(Layer):
    """A shape for `num_axes` axes from `axis` on: 0 keeps a size, -1 is the rest."""

    keeps_means = True

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        parameter, rank = self.proto.reshape_param, len(bottoms[0])
        if parameter.pixelshuffler != 1:
            raise self.error("reshape_param.pixelshuffler is not supported")
        self._dims = [int(d) for d in parameter.shape.dim]
        if self._dims.count(-1) > 1 or any(d < -1 for d in self._dims):
            raise self.error("reshape_param.shape must have sizes, 0, and -1 at most once")
        axis, number = parameter.axis, parameter.num_axes
        self._axis = axis if axis >= 0 else rank + axis + 1
        if not 0 <= self._axis <= rank:
            raise self.error(f"reshape_param.axis is {axis}, but its bottom has {rank} axes")
        if number < -1:
            raise self.error(f"reshape_param.num_axes must be at least -1, not {number}")
        self._end = rank if number == -1 else self._axis + number
        if self._end > rank:
            raise self.error(
                f"reshape_param.num_axes {number} from axis {self._axis} on goes beyond the {rank} "
                "axes of its bottom"
            )
        for place, dim in enumerate(self._dims):
            if dim == 0 and self._axis + place >= rank:
                raise self.error(
                    f"reshape_param.shape has 0 at place {place}, but its bottom has no axis "
                    f"{self._axis + place} to take the size of"
                )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        shape = bottoms[0]
        head, tail = shape[: self._axis], shape[self._end :]
        dims = [shape[self._axis + i] if d == 0 else d for i, d in enumerate(self._dims)]
        count = math.prod(shape)
        if -1 in dims:
            rest = math.prod(head) * math.prod(tail) * math.prod(d for d in dims if d != -1)
            if rest == 0 or count % rest:
                raise self.error(
                    f"a bottom of shape {list(shape)} cannot be made {self._dims}: its {count} "
                    f"elements are no multiple of {rest}"
                )
            dims[dims.index(-1)] = count // rest
        made = (*head, *dims, *tail)
        if math.prod(made) != count:
            raise self.error(
                f"a bottom of shape {list(shape)} has {count} elements, the shape {list(made)} "
                f"has {math.prod(made)}"
            )
        return [made]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        y = x.reshape(self.shapes([tuple(x.shape)])[0])
        return [y.view_as(y) if y is x else y]


@layer("Permute")
class Permute(Layer):
    """Intel's: the axes in another order; those not given come last, in their old order."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the order."""
        order = [int(axis) for axis in self.proto.permute_param.order]
        rank = len(bottoms[0])
        if any(axis >= rank for axis in order) or len(set(order)) != len(order):
            raise self.error(
                f"permute_param.order {order} must name axes of its bottom, 0 to {rank - 1}, once"
            )
        self._order = [*order, *(axis for axis in range(rank) if axis not in order)]

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        return [tuple(bottoms[0][axis] for axis in self._order)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        return [bottoms[0].permute(self._order).contiguous()]


@layer("Crop")
class Crop(Layer):
    """The part of the first bottom with the size of the second on the axes from `axis` on."""

    bottoms = (2, 2)
    no_gradient_to = (1,)
    references = (1,)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        parameter, rank = self.proto.crop_param, len(bottoms[0])
        self._axis = axis_in(self, parameter.axis, rank, "crop_param.axis")
        given = [int(o) for o in parameter.offset]
        if len(given) not in (0, 1, rank - self._axis):
            raise self.error(
                f"crop_param.offset is given {len(given)} times; give it once, or once for each of "
                f"the {rank - self._axis} axes that are cropped"
            )
        many = rank - self._axis
        self._offsets = given if len(given) == many else (given or [0]) * many

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        shape, reference = bottoms
        rank_of(self, reference, len(shape))
        for axis, offset in enumerate(self._offsets, self._axis):
            if offset + reference[axis] > shape[axis]:
                raise self.error(
                    f"{reference[axis]} elements from crop_param.offset {offset} on go beyond the "
                    f"{shape[axis]} of axis {axis}"
                )
        return [(*shape[: self._axis], *reference[self._axis :])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        y = bottoms[0]
        for axis, offset in enumerate(self._offsets, self._axis):
            y = y.narrow(axis, offset, bottoms[1].shape[axis])
        return [y.contiguous()]


@layer("Tile")
class Tile(Layer):
    """A blob repeated along an axis."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        parameter = self.proto.tile_param
        self._axis = axis_in(self, parameter.axis, len(bottoms[0]), "tile_param.axis")
        self._tiles = positive(self, parameter.tiles, "tile_param.tiles")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        shape, axis = bottoms[0], self._axis
        return [(*shape[:axis], shape[axis] * self._tiles, *shape[axis + 1 :])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        repeats = [1] * bottoms[0].dim()
        repeats[self._axis] = self._tiles
        return [bottoms[0].repeat(repeats)]


@layer("Reorg")
class Reorg(Layer):
    """Intel's and Darknet's exchange of positions for channels, `stride` squared to one.

    Elements keep Darknet's order: they move to the positions of a blob with fewer channels and
    larger planes, and that memory is then read as a blob with more channels and smaller planes.
    This follows Darknet's published code and was not compared with Intel's.
    """

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        self._stride = positive(self, self.proto.reorg_param.stride, "reorg_param.stride")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        rank_of(self, bottoms[0], 4)
        items, channels, height, width = bottoms[0]
        s = self._stride
        if channels % s**2 or (not self.proto.reorg_param.reverse and (height % s or width % s)):
            raise self.error(
                f"stride {s} squared must divide the channels, and {s} the height and width, of "
                f"{list(bottoms[0])}"
            )
        if self.proto.reorg_param.reverse:
            return [(items, channels // s**2, height * s, width * s)]
        return [(items, channels * s**2, height // s, width // s)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        s = self._stride
        items, channels, height, width = x.shape
        few = channels // s**2
        shape = self.shapes([tuple(x.shape)])[0]
        if self.proto.reorg_param.reverse:
            y = x.reshape(items, s, s, few, height, width).permute(0, 3, 4, 1, 5, 2)
        else:
            y = x.reshape(items, few, height, s, width, s).permute(0, 3, 5, 1, 2, 4)
        return [y.reshape(shape)]
