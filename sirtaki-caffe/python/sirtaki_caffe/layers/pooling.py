"""Pooling, with Caffe's windows.

The number of windows is rounded up; only with padding, a window that would start beyond the image
and its padding is dropped. Without padding such a window (stride > kernel) stays, and is empty: its
maximum is the least float, as in Caffe, at index -1; its mean is 0, where Caffe divides 0 by 0.
STOCHASTIC pooling, which Caffe has for GPUs alone, works on every device here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, channels_last, layer
from sirtaki_caffe.layers.checks import positive, rank_of
from sirtaki_caffe.proto.schema import TRAIN

Pair = tuple[int, int]
_MAX = 0
_AVE = 1
_STOCHASTIC = 2
_LEAST = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class Pool:
    """Windows over height and width.

    Args:
        method: 0 maximum, 1 mean, 2 at random in proportion to the values.
        kernel: The size of a window.
        stride: The distance between windows.
        pad: The padding at each border; for the mean it counts as zeros.
        ceil: Whether to round the number of windows up.
        count_pad: Whether the mean counts padding.
    """

    method: int
    kernel: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    ceil: bool = True
    count_pad: bool = True

    def outputs(self, owner: Layer, sizes: Sequence[int]) -> Pair:
        """Return the number of windows of an image, vertically and horizontally."""
        found = []
        for size, k, s, p in zip(sizes, self.kernel, self.stride, self.pad, strict=True):
            span = size + 2 * p - k
            number = (span + s - 1 if self.ceil else span) // s + 1
            if any(self.pad) and (number - 1) * s >= size + p:
                number -= 1
            if number < 1:
                raise owner.error(
                    f"its windows (kernel {k}, stride {s}, pad {p}) do not fit an axis of {size}"
                )
            found.append(number)
        return found[0], found[1]

    def apply(self, owner: Layer, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Pool; a maximum also returns its index in the plane, the first of equal ones."""
        windows = self.outputs(owner, x.shape[2:])
        x = channels_last(x)
        kernel, stride, pad = self.kernel, self.stride, self.pad
        if self.method == _STOCHASTIC:
            return self._stochastic(x, owner), None
        # PyTorch pads by at most half a kernel; for more, the image is padded here.
        beyond = 2 * pad[0] > kernel[0] or 2 * pad[1] > kernel[1]
        borders = [pad[1], pad[1], pad[0], pad[0]]
        if self.method == _AVE:
            if beyond and not self.count_pad:
                ones = F.pad(torch.ones_like(x[:1, :1]), borders)
                filled = F.avg_pool2d(ones, kernel, stride, 0, self.ceil)
                y = F.avg_pool2d(F.pad(x, borders), kernel, stride, 0, self.ceil) / filled
            elif beyond:
                y = F.avg_pool2d(F.pad(x, borders), kernel, stride, 0, self.ceil)
            else:
                y = F.avg_pool2d(x, kernel, stride, pad, self.ceil, self.count_pad)
            return _with_empty(y, windows, 0.0), None
        if beyond:
            y, at = F.max_pool2d_with_indices(
                F.pad(x, borders, value=-torch.inf), kernel, stride, (0, 0), (1, 1), self.ceil
            )
            padded = x.shape[3] + 2 * pad[1]
            at = (at // padded - pad[0]) * x.shape[3] + at % padded - pad[1]
        else:
            y, at = F.max_pool2d_with_indices(x, kernel, stride, pad, (1, 1), self.ceil)
        return _with_empty(y, windows, _LEAST), _with_empty(at, windows, -1)

    def _stochastic(self, x: torch.Tensor, owner: Layer) -> torch.Tensor:
        """In TRAIN return one random element per window, by value; else the value-weighted mean."""
        height, width = self.outputs(owner, x.shape[2:])
        (kh, kw), (sh, sw) = self.kernel, self.stride
        border = [0, (width - 1) * sw + kw - x.shape[3], 0, (height - 1) * sh + kh - x.shape[2]]
        windows = F.pad(x, border).unfold(2, kh, sh).unfold(3, kw, sw).flatten(4)
        if owner.context.phase != TRAIN:
            total = windows.sum(4)
            mean = windows.square().sum(4) / total.clamp(min=torch.finfo(torch.float32).tiny)
            return mean
        sums = windows.detach().cumsum(4)
        random = owner.context.random
        drawn = torch.empty(sums.shape[:4], dtype=x.dtype, device=random.device)
        threshold = drawn.uniform_(generator=random).to(x.device) * sums[..., -1]
        first = (sums < threshold[..., None]).sum(4, keepdim=True).clamp(max=kh * kw - 1)
        return windows.gather(4, first)[..., 0]


def _with_empty(y: torch.Tensor, windows: Pair, value: float) -> torch.Tensor:
    """Return all windows; the empty ones that PyTorch omits get a value."""
    height, width = windows
    y = y[:, :, :height, :width]
    if y.shape[2:] == windows:
        return y
    return F.pad(y, [0, width - y.shape[3], 0, height - y.shape[2]], value=value)


@layer("Pooling")
class Pooling(Layer):
    """Maxima or means of windows; a second top of MAX contains their indices."""

    tops = (1, 2)

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._parameter = proto.pooling_param

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        rank_of(self, bottoms[0], 4)
        parameter = self._parameter
        if parameter.pad_3d or parameter.kernel_size_3d or parameter.stride_3d:
            raise self.error("pooling over three axes (…_3d) is not supported")
        if len(self.proto.top) > 1 and parameter.pool != _MAX:
            raise self.error("only MAX pooling has a second top")
        self._pool = None if parameter.global_pooling else self._windows()
        if self._pool is None:
            self._check_global()

    def _windows(self) -> Pool:
        kernel = self._pair("kernel_size", "kernel")
        stride = self._pair("stride", "stride")
        pad = self._pair("pad", "pad")
        for field, pair in (("kernel_size", kernel), ("stride", stride)):
            for value in pair:
                positive(self, value, f"pooling_param.{field}")
        if any(pad) and self._parameter.pool == _STOCHASTIC:
            raise self.error("pooling_param.pad is for MAX and AVE pooling")
        if pad[0] >= kernel[0] or pad[1] >= kernel[1]:
            raise self.error(
                f"pooling_param.pad {list(pad)} must be smaller than the kernel {list(kernel)}"
            )
        return Pool(
            self._parameter.pool,
            kernel,
            stride,
            pad,
            self._parameter.round_mode == 0,
            self._parameter.avg_include_pad,
        )

    def _pair(self, single: str, stem: str) -> Pair:
        """Return a field for both axes, or one for each."""
        parameter = self._parameter
        fields = [f"{stem}_h", f"{stem}_w"]
        given = [parameter.HasField(field) for field in fields]
        if not any(given):
            if stem == "kernel" and not parameter.HasField(single):
                raise self.error("pooling_param.kernel_size is missing")
            return (int(getattr(parameter, single)),) * 2
        if parameter.HasField(single):
            raise self.error(f"pooling_param has both {single} and {stem}_h or {stem}_w")
        if not all(given) and stem != "pad":
            raise self.error(f"pooling_param needs both {stem}_h and {stem}_w")
        return int(getattr(parameter, fields[0])), int(getattr(parameter, fields[1]))

    def _check_global(self) -> None:
        parameter = self._parameter
        for field in ("kernel_size", "kernel_h", "kernel_w"):
            if parameter.HasField(field):
                raise self.error(f"pooling_param has both global_pooling and {field}")
        pads, strides = ("pad", "pad_h", "pad_w"), ("stride", "stride_h", "stride_w")
        if any(getattr(parameter, field) for field in pads):
            raise self.error("pooling_param.global_pooling needs pad 0")
        if any(parameter.HasField(f) and getattr(parameter, f) != 1 for f in strides):
            raise self.error("pooling_param.global_pooling needs stride 1")

    def _for(self, height: int, width: int) -> Pool:
        return self._pool or Pool(self._parameter.pool, (height, width))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the windows."""
        rank_of(self, bottoms[0], 4)
        items, channels, height, width = bottoms[0]
        windows = self._for(height, width).outputs(self, (height, width))
        return [(items, channels, *windows)] * len(self.proto.top)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        if self._pool is None and self._parameter.pool == _AVE:
            return [x.mean((2, 3), keepdim=True)]
        y, at = self._for(x.shape[2], x.shape[3]).apply(self, x)
        if len(self.proto.top) == 1:
            return [y]
        assert at is not None
        return [y, at.to(x.dtype)]


@layer("SPP")
class SPP(Layer):
    """A pyramid of poolings into 1, 2 x 2, 4 x 4 … windows, concatenated to a vector per item.

    As in BVLC's Caffe, a pyramid with one level keeps the axes of its one window.
    """

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        rank_of(self, bottoms[0], 4)
        height = positive(self, self.proto.spp_param.pyramid_height, "spp_param.pyramid_height")
        if height > 16:
            raise self.error(f"spp_param.pyramid_height {height} is more than 16")
        self._levels = height

    def _pools(self, sizes: Sequence[int]) -> list[Pool]:
        """Return one pooling per level."""
        pools = []
        for level in range(self._levels):
            bins = 2**level
            kernel = tuple(-(-size // bins) for size in sizes)
            pad = tuple((k * bins - size + 1) // 2 for k, size in zip(kernel, sizes, strict=True))
            if any(p >= k for p, k in zip(pad, kernel, strict=True)):
                raise self.error(
                    f"a plane of {list(sizes)} is too small for {bins} x {bins} windows"
                )
            square = (kernel[0], kernel[1])
            pools.append(Pool(self.proto.spp_param.pool, square, square, (pad[0], pad[1])))
        return pools

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the items, and all windows of all channels."""
        items, channels, *sizes = bottoms[0]
        windows = [pool.outputs(self, sizes) for pool in self._pools(sizes)]
        if self._levels == 1:
            return [(items, channels, *windows[0])]
        return [(items, channels * sum(height * width for height, width in windows))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        levels = [pool.apply(self, x)[0] for pool in self._pools(x.shape[2:])]
        return levels if self._levels == 1 else [torch.cat([x.flatten(1) for x in levels], 1)]
