"""Elementwise layers.

Some of Caffe's in-place backward functions read the output in place of the input. Here a bottom
keeps its values, so gradients follow the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import filled
from sirtaki_caffe.proto.schema import TRAIN


class Elementwise(Layer):
    """One bottom, one top of its shape."""

    may_be_in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the bottom."""
        return [bottoms[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Apply the function to each element."""
        return [self.apply(bottoms[0])]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Return the function's result; defined by each layer."""
        raise NotImplementedError


@layer("ReLU")
class ReLU(Elementwise):
    """max(x, 0) + negative_slope * min(x, 0)."""

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._slope = float(proto.relu_param.negative_slope)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return F.leaky_relu(x, self._slope) if self._slope else F.relu(x)


@layer("PReLU")
class PReLU(Elementwise):
    """ReLU with a learnt slope: one per channel, or one for all with `channel_shared`."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the slopes, 0.25 without a filler."""
        parameter = self.proto.prelu_param
        if len(bottoms[0]) < 2:
            raise self.error("its bottom needs an axis of channels")
        filler = parameter.filler
        if not parameter.HasField("filler"):
            filler = type(filler)(type="constant", value=0.25)
        shape = () if parameter.channel_shared else (bottoms[0][1],)
        self.params = [filled(self, shape, filler, "prelu_param.filler")]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return F.prelu(x, self.params[0].data.reshape(-1))


@layer("ELU")
class ELU(Elementwise):
    """The element if it is positive, otherwise alpha * (exp(x) - 1)."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return F.elu(x, self.proto.elu_param.alpha)


@layer("Sigmoid")
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.sigmoid(x)


@layer("TanH")
class TanH(Elementwise):
    """The hyperbolic tangent."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.tanh(x)


@layer("AbsVal")
class AbsVal(Elementwise):
    """The absolute value; not in place, as in Caffe."""

    may_be_in_place = False

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x.abs()


@layer("BNLL")
class BNLL(Elementwise):
    """log(1 + exp(x))."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return F.softplus(x, threshold=50.0)


@layer("Swish")
class Swish(Elementwise):
    """x * sigmoid(beta * x)."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x * torch.sigmoid(x * float(self.proto.swish_param.beta))


@layer("Clip")
class Clip(Elementwise):
    """The nearest number in [min, max]."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bounds."""
        parameter = self.proto.clip_param
        if not (parameter.HasField("min") and parameter.HasField("max")):
            raise self.error("clip_param needs min and max")
        if parameter.min > parameter.max:
            raise self.error("clip_param.min is greater than clip_param.max")

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x.clamp(self.proto.clip_param.min, self.proto.clip_param.max)


@layer("Threshold")
class Threshold(Elementwise):
    """1 where x > threshold, else 0; it has no gradient."""

    no_gradient_to = (0,)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x.gt(self.proto.threshold_param.threshold).to(x.dtype)


@layer("Power")
class Power(Elementwise):
    """(shift + scale * x) ^ power; a constant if power or scale is 0."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """A power of 1 is linear."""
        self.keeps_means = self.proto.power_param.power == 1

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        power, scale, shift = (
            self.proto.power_param.power,
            self.proto.power_param.scale,
            self.proto.power_param.shift,
        )
        if power == 0 or scale == 0:
            return torch.full_like(x, shift).pow(power)
        inner = x * scale if scale != 1 else x
        inner = inner + shift if shift or inner is x else inner
        return inner if power == 1 else inner.pow(power)


@layer("Exp")
class Exp(Elementwise):
    """base ^ (shift + scale * x); a base of -1 means e."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the base."""
        base = self.proto.exp_param.base
        if base != -1 and base <= 0:
            raise self.error(f"exp_param.base must be positive, or -1 for e, not {base:g}")

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        parameter = self.proto.exp_param
        log_base = 1.0 if parameter.base == -1 else math.log(parameter.base)
        inner = x * (log_base * parameter.scale)
        return torch.exp(inner + log_base * parameter.shift if parameter.shift else inner)


@layer("Log")
class Log(Elementwise):
    """The logarithm of (shift + scale * x); a base of -1 means e."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the base."""
        base = self.proto.log_param.base
        if base != -1 and (base <= 0 or base == 1):
            raise self.error(
                f"log_param.base must be positive and not 1, or -1 for e, not {base:g}"
            )

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        parameter = self.proto.log_param
        log_base = 1.0 if parameter.base == -1 else math.log(parameter.base)
        return torch.log(x * parameter.scale + parameter.shift).div(log_base)


@layer("MnActivation")
class MnActivation(Elementwise):
    """Intel's exchange of activations between parts of a model: the identity if none is split.

    Nets with `multinode { model_parallel }` train data-parallel here, with the same result.
    """

    may_be_in_place = False

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x.view_as(x)


@layer("Dropout")
class Dropout(Elementwise):
    """In TRAIN, elements are zero with probability `dropout_ratio`, and others are scaled up."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the ratio."""
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio must be at least 0 and below 1, not {self.ratio:g}")

    @property
    def ratio(self) -> float:
        """The probability of zero."""
        return float(self.proto.dropout_param.dropout_ratio)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        if self.context.phase != TRAIN or self.ratio == 0:
            return x.view_as(x)
        random = self.context.random
        keep = 1 - self.ratio
        mask = torch.empty(self.mask_shape(x), dtype=x.dtype, device=random.device)
        mask.bernoulli_(keep, generator=random).div_(keep)
        return x * mask.to(x.device)

    def mask_shape(self, x: torch.Tensor) -> Shape:
        """Return the shape for one random number per element."""
        return tuple(x.shape)


@layer("SpatialDropout")
class SpatialDropout(Dropout):
    """Intel's Dropout of entire channels."""

    @property
    def ratio(self) -> float:
        """The probability of zero."""
        return float(self.proto.spatial_dropout_param.dropout_ratio)

    def mask_shape(self, x: torch.Tensor) -> Shape:
        """Return the shape for one random number per channel of an item."""
        return tuple(x.shape[:2]) + (1,) * (x.dim() - 2)
