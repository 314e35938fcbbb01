"""Convolution, its transpose, and its windows as columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, channels_last, layer
from sirtaki_caffe.layers.checks import positive, same_shapes, weights
from sirtaki_caffe.layers.products.windows import windows_of

_CONVOLUTIONS: tuple[Callable[..., torch.Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Callable[..., torch.Tensor], ...] = (
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)


class _Convolving(Layer):
    """The shared parts of Convolution and Deconvolution, with bottoms that share weights."""

    bottoms = (1, None)
    tops = (1, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters; create weights and biases."""
        parameter = self.proto.convolution_param
        if len(self.proto.bottom) != len(self.proto.top):
            raise self.error(
                f"it has {len(self.proto.bottom)} bottoms and {len(self.proto.top)} tops; it needs "
                "a top for each bottom"
            )
        if parameter.fusion_type:
            raise self.error("convolution_param.fusion_type is made by Intel's inference only")
        self._windows = windows_of(self, bottoms[0])
        self._axis = self._windows.axis
        if len(self._windows.kernel) > 3:
            raise self.error("more than three spatial axes are not supported")
        self._channels = bottoms[0][self._axis]
        self._outputs = self.outputs()
        self._group = self.groups()
        for what, number in (("channels", self._channels), ("num_output", self._outputs)):
            if number % self._group:
                raise self.error(
                    f"convolution_param.group {self._group} does not divide {what} {number}"
                )
        shape = (*self.weight_channels(), *self._windows.kernel)
        self.params = weights(self, shape, self._outputs, "convolution_param")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return one shape per bottom."""
        same_shapes(self, bottoms)
        shape = bottoms[0]
        if shape[self._axis] != self._channels:
            raise self.error(
                f"its bottom has {shape[self._axis]} channels, but its weights are for "
                f"{self._channels}"
            )
        spatial = self.spatial(shape[self._axis + 1 :])
        if any(size <= 0 for size in spatial):
            raise self.error(
                f"its kernel {list(self._windows.kernel)} does not fit into a bottom of shape "
                f"{list(shape)} with pad {list(self._windows.pad)}"
            )
        return [(*shape[: self._axis], self._outputs, *spatial)] * len(bottoms)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Apply the convolution to each bottom."""
        return [self._one(x) for x in bottoms]

    def _one(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve one bottom, whose axes before the channels are merged to one axis of items."""
        parameter = self.proto.convolution_param
        items = x.shape[: self._axis]
        if self._axis != 1:
            x = x.reshape(math.prod(items), *x.shape[self._axis :])
        bias = self.params[1].data if len(self.params) > 1 else None
        y = self.convolve(x, self.params[0].data, bias)
        if parameter.relu:
            y = F.leaky_relu(y, parameter.negative_slope)
        return y if self._axis == 1 else y.reshape(*items, *y.shape[1:])

    def outputs(self) -> int:
        """Return the channels of a top."""
        given = self.proto.convolution_param.num_output
        return positive(self, given, "convolution_param.num_output")

    def groups(self) -> int:
        """Return the number of independent groups of channels."""
        return positive(self, self.proto.convolution_param.group, "convolution_param.group")

    def weight_channels(self) -> tuple[int, int]:
        """Return the first two sizes of the weights."""
        raise NotImplementedError

    def spatial(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the spatial sizes of a top, from those of a bottom."""
        raise NotImplementedError

    def convolve(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Convolve a bottom (items, channels, spatial axes …)."""
        raise NotImplementedError


@layer("Convolution")
class Convolution(_Convolving):
    """Cross-correlation over up to three spatial axes; without any, a product of channels."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Set up like all; weights have the memory order of bottoms."""
        super().setup(bottoms)
        self.params[0].keep_channels_last()

    def weight_channels(self) -> tuple[int, int]:
        """Return the outputs, and the inputs of a group."""
        return self._outputs, self._channels // self._group

    def spatial(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes, rounded down."""
        return self._windows.outputs(sizes)

    def convolve(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Convolve by PyTorch."""
        w = self._windows
        if not w.kernel:
            one = F.conv1d(x[..., None], weight[..., None], bias, groups=self._group)
            return one[..., 0]
        convolution = _CONVOLUTIONS[len(w.kernel) - 1]
        return convolution(channels_last(x), weight, bias, w.stride, w.pad, w.dilation, self._group)


@layer("ConvolutionDepthwise")
@layer("DepthwiseConvolution")
class Depthwise(Convolution):
    """A convolution of each channel separately, whatever `group` is; two forks use this name.

    Without `num_output` a top has as many channels as its bottom.
    """

    def outputs(self) -> int:
        """See the class."""
        return int(self.proto.convolution_param.num_output) or self._channels

    def groups(self) -> int:
        """Return one group per channel."""
        return self._channels


@layer("Deconvolution")
class Deconvolution(_Convolving):
    """The gradient of convolution as a layer."""

    def weight_channels(self) -> tuple[int, int]:
        """Return the inputs, and the outputs of a group."""
        return self._channels, self._outputs // self._group

    def spatial(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes from which a convolution makes the bottom's."""
        return self._windows.inputs(sizes)

    def convolve(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Convolve by PyTorch."""
        w = self._windows
        if not w.kernel:
            one = F.conv_transpose1d(x[..., None], weight[..., None], bias, groups=self._group)
            return one[..., 0]
        transposed = _TRANSPOSED[len(w.kernel) - 1]
        return transposed(x, weight, bias, w.stride, w.pad, 0, self._group, w.dilation)


@layer("Im2col")
class Im2col(Layer):
    """The windows of a convolution as columns: (items, channels * kernel, spatial axes …)."""

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._elements = 0

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        self._windows = windows_of(self, bottoms[0])

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """See the class."""
        w = self._windows
        spatial = w.outputs(bottoms[0][w.axis + 1 :])
        if any(size <= 0 for size in spatial):
            raise self.error(f"its kernel does not fit into a bottom of shape {list(bottoms[0])}")
        channels = bottoms[0][w.axis] * math.prod(w.kernel)
        return [(*bottoms[0][: w.axis], channels, *spatial)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return one slice of the padded bottom for each element of the kernel."""
        w = self._windows
        x = bottoms[0]
        sizes = w.outputs(x.shape[w.axis + 1 :])
        padded = F.pad(x, [p for pad in reversed(w.pad) for p in (pad, pad)])
        slices = []
        for place in itertools.product(*(range(k) for k in w.kernel)):
            taken = padded
            for axis, (at, d, size, s) in enumerate(
                zip(place, w.dilation, sizes, w.stride, strict=True), w.axis + 1
            ):
                index = torch.arange(size, device=x.device) * s + at * d
                taken = taken.index_select(axis, index)
            slices.append(taken)
        columns = torch.stack(slices, w.axis + 1)
        return [columns.flatten(w.axis, w.axis + 1)]
