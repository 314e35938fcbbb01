"""Layers that work on each element alone.

Caffe's in-place backward of some of them sees the output in the place of the input; here a bottom
keeps its values, so gradients are those of the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import filled


class Elementwise(Layer):
    """One bottom, one top of its shape."""

    may_be_in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """That of the bottom."""
        return [bottoms[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The function of each element."""
        return [self.apply(bottoms[0])]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """The function; defined by each layer."""
        raise NotImplementedError


@layer("ReLU")
class ReLU(Elementwise):
    """max(x, 0) + negative_slope * min(x, 0)."""

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._slope = float(proto.relu_param.negative_slope)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return F.leaky_relu(x, self._slope) if self._slope else F.relu(x)


@layer("PReLU")
class PReLU(Elementwise):
    """ReLU with a learnt slope: one a channel, or one for all with `channel_shared`."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Make the slopes, 0.25 where no filler is given."""
        parameter = self.proto.prelu_param
        if len(bottoms[0]) < 2:
            raise self.error("its bottom needs an axis of channels")
        filler = parameter.filler
        if not parameter.HasField("filler"):
            filler = type(filler)(type="constant", value=0.25)
        shape = () if parameter.channel_shared else (bottoms[0][1],)
        self.params = [filled(self, shape, filler, "prelu_param.filler")]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return F.prelu(x, self.params[0].data.reshape(-1))


@layer("ELU")
class ELU(Elementwise):
    """The element where it is positive, alpha * (exp(x) - 1) elsewhere."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return F.elu(x, self.proto.elu_param.alpha)


@layer("Sigmoid")
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return torch.sigmoid(x)


@layer("TanH")
class TanH(Elementwise):
    """The hyperbolic tangent."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return torch.tanh(x)


@layer("AbsVal")
class AbsVal(Elementwise):
    """The absolute value; not in place, as in Caffe."""

    may_be_in_place = False

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return x.abs()


@layer("BNLL")
class BNLL(Elementwise):
    """log(1 + exp(x))."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return F.softplus(x, threshold=50.0)


@layer("Swish")
class Swish(Elementwise):
    """x * sigmoid(beta * x)."""

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
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
        """As the class says."""
        return x.clamp(self.proto.clip_param.min, self.proto.clip_param.max)


@layer("Threshold")
class Threshold(Elementwise):
    """1 where x > threshold, else 0; it has no gradient."""

    no_gradient_to = (0,)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return x.gt(self.proto.threshold_param.threshold).to(x.dtype)


@layer("Power")
class Power(Elementwise):
    """(shift + scale * x) ^ power; a constant where power or scale is 0."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """A power of 1 is linear."""
        self.keeps_means = self.proto.power_param.power == 1

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
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
    """base ^ (shift + scale * x); the base is e where it is -1."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the base."""
        base = self.proto.exp_param.base
        if base != -1 and base <= 0:
            raise self.error(f"exp_param.base must be positive, or -1 for e, not {base:g}")

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        parameter = self.proto.exp_param
        log_base = 1.0 if parameter.base == -1 else math.log(parameter.base)
        inner = x * (log_base * parameter.scale)
        return torch.exp(inner + log_base * parameter.shift if parameter.shift else inner)


@layer("Log")
class Log(Elementwise):
    """The logarithm of (shift + scale * x); the base is e where it is -1."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the base."""
        base = self.proto.log_param.base
        if base != -1 and (base <= 0 or base == 1):
            raise self.error(
                f"log_param.base must be positive and not 1, or -1 for e, not {base:g}"
            )

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        parameter = self.proto.log_param
        log_base = 1.0 if parameter.base == -1 else math.log(parameter.base)
        return torch.log(x * parameter.scale + parameter.shift).div(log_base)


@layer("MnActivation")
class MnActivation(Elementwise):
    """Intel's exchange of activations between parts of a model: the identity where none is split.

    Nets with `multinode { model_parallel }` train data-parallel here, with the same result.
    """

    may_be_in_place = False

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return x.view_as(x)
