"""The windows of convolutions: sizes, steps and borders along each spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sirtaki_caffe.layers.base import Layer, Shape
from sirtaki_caffe.layers.checks import axis_in


@dataclass(frozen=True)
class Windows:
    """One number per spatial axis in each field.

    Args:
        axis: The axis of the channels; the spatial axes follow it.
        kernel: The elements of a window.
        stride: The distance between windows.
        pad: Zeros at each end of the axis.
        dilation: The distance between elements of a window.
    """

    axis: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Return the distance from the first element of a window to its last, inclusive."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def outputs(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Return the number of whole windows in an input."""
        return tuple(
            (size + 2 * p - e) // s + 1
            for size, p, e, s in zip(spatial, self.pad, self.extent, self.stride, strict=True)
        )

    def inputs(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Return the input size with this number of windows, for a transposed convolution."""
        return tuple(
            s * (size - 1) + e - 2 * p
            for size, p, e, s in zip(spatial, self.pad, self.extent, self.stride, strict=True)
        )


def windows_of(layer: Layer, bottom: Shape) -> Windows:
    """Read `convolution_param`, where a number may be given once or per spatial axis."""
    parameter = layer.proto.convolution_param
    axis = axis_in(layer, parameter.axis, len(bottom), "convolution_param.axis")
    axes = len(bottom) - axis - 1
    kernel = _sizes(layer, parameter, axes, "kernel_size", "kernel", None)
    stride = _sizes(layer, parameter, axes, "stride", "stride", 1)
    pad = _sizes(layer, parameter, axes, "pad", "pad", 0)
    dilation = _sizes(layer, parameter, axes, "dilation", "", 1)
    for field, values in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if not all(values):
            raise layer.error(f"convolution_param.{field} must be positive, not {list(values)}")
    return Windows(axis, kernel, stride, pad, dilation)


def _sizes(
    layer: Layer, parameter: Any, axes: int, many: str, single: str, default: int | None
) -> tuple[int, ...]:
    """Return the values of a field `many`, or of `single`_h and `single`_w."""
    given = [int(v) for v in getattr(parameter, many)]
    names = [f"{single}_h", f"{single}_w"] if single else []
    if any(parameter.HasField(name) for name in names):
        if given:
            raise layer.error(
                f"convolution_param has both {many} and {names[0]} or {names[1]}; keep one form"
            )
        if axes != 2:
            raise layer.error(
                f"convolution_param.{names[0]} and {names[1]} are for two spatial axes, but its "
                f"bottom has {axes}; use {many}"
            )
        return tuple(int(getattr(parameter, name)) for name in names)
    if not given and default is None and axes:
        raise layer.error(f"convolution_param.{many} is missing")
    if len(given) not in (0, 1, axes):
        raise layer.error(
            f"convolution_param.{many} is given {len(given)} times; its bottom has {axes} spatial "
            "axes: give it once, or once for each"
        )
    if len(given) == axes:
        return tuple(given)
    return tuple(given[:1] or [default or 0]) * axes
