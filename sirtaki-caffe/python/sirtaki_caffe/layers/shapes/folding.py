"""Reduction of axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, Share, layer
from sirtaki_caffe.layers.checks import axis_in

_SUM, _ASUM, _SUMSQ, _MEAN = 1, 2, 3, 4


@layer("Reduction")
class Reduction(Layer):
    """The sum, sum of sizes, sum of squares or mean over all axes from `axis` on, times coeff."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the axis."""
        axis = self.proto.reduction_param.axis
        self._axis = axis_in(self, axis, len(bottoms[0]), "reduction_param.axis")
        self.keeps_means = self.proto.reduction_param.operation in (_SUM, _MEAN)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the axes before `axis`."""
        return [tuple(bottoms[0][: self._axis])]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return a number made of all items, unless the axis of items remains."""
        return [max(self.shares) if self._axis else min(max(self.shares), Share.MEAN)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0].flatten(self._axis)
        operation = self.proto.reduction_param.operation
        if operation == _ASUM:
            x = x.abs()
        elif operation == _SUMSQ:
            x = x.square()
        coefficient = self.proto.reduction_param.coeff
        if self._axis == 0 and self.processes > 1:
            y = self._of_all(x)
        else:
            y = x.mean(-1) if operation == _MEAN else x.sum(-1)
        return [y if coefficient == 1 else y * coefficient]

    def _of_all(self, x: torch.Tensor) -> torch.Tensor:
        """Return a number whose mean over the processes is that of the whole batch."""
        if self.proto.reduction_param.operation == _MEAN:
            return x.sum() / self.per_process(x.numel())
        return x.sum() * self.processes


@layer("ArgMax")
class ArgMax(Layer):
    """The indices of the top_k largest elements, or with `out_max_val` their values.

    Along `axis` they replace the elements. Without it, an item is one list: the top is (items, 1,
    top_k), or (items, 2, top_k) with indices and values, and has at least as many axes as the
    bottom. Of equal elements, the one with the larger index comes first.
    """

    no_gradient_to = (0,)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        parameter = self.proto.argmax_param
        self._axis: int | None = None
        if parameter.HasField("axis"):
            self._axis = axis_in(self, parameter.axis, len(bottoms[0]), "argmax_param.axis")
        elif not bottoms[0]:
            raise self.error("its bottom has no axes")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        shape, axis = bottoms[0], self._axis
        size = 1
        for length in shape[1:] if axis is None else [shape[axis]]:
            size *= length
        best = int(self.proto.argmax_param.top_k)
        if not 0 < best <= size:
            raise self.error(
                f"argmax_param.top_k must be between 1 and the {size} elements, not {best}"
            )
        if axis is not None:
            return [(*shape[:axis], best, *shape[axis + 1 :])]
        rows = 2 if self.proto.argmax_param.out_max_val else 1
        return [(shape[0], rows, best, *[1] * (len(shape) - 3))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        parameter = self.proto.argmax_param
        x = bottoms[0].detach()
        shape = self.shapes([tuple(x.shape)])[0]
        axis = self._axis
        if axis is None:
            x, axis = x.reshape(x.shape[0], -1), 1
        values, places = x.flip(axis).sort(dim=axis, descending=True, stable=True)
        values = values.narrow(axis, 0, parameter.top_k)
        places = (x.shape[axis] - 1 - places.narrow(axis, 0, parameter.top_k)).to(x.dtype)
        if self._axis is not None:
            return [values if parameter.out_max_val else places]
        both = [places, values] if parameter.out_max_val else [places]
        return [torch.stack(both, 1).reshape(shape)]
