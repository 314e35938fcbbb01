"""Initial values of learnable blobs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from sirtaki_caffe.errors import CaffeError

_FAN_OUT = 1
_AVERAGE = 2
_DIRECTIONS = 8


def fill(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    """Fill a blob according to its filler.

    The numbers follow Caffe's distributions, but not its random stream, which depends on its Boost
    library. `gabor` is a bank of Gabor filters as in textbooks.

    Args:
        tensor: Overwritten.
        filler: A FillerParameter.
        random: The random generator.

    Raises:
        CaffeError: The filler is unknown or cannot fill a blob of this shape.
    """
    kind = str(filler.type)
    if kind not in _fillers:
        raise CaffeError(
            f"there is no filler of type '{kind}'; there are {', '.join(sorted(_fillers))}"
        )
    with torch.no_grad():
        _fillers[kind](tensor, filler, random)


def _constant(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    tensor.fill_(filler.value)


def _uniform(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    if filler.min > filler.max:
        raise CaffeError(f"a uniform filler from {filler.min:g} to {filler.max:g} is empty")
    tensor.uniform_(filler.min, filler.max, generator=random)


def _gaussian(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    if filler.std < 0 or filler.sparse < -1:
        raise CaffeError("a gaussian filler needs std >= 0 and sparse >= -1")
    tensor.normal_(filler.mean, filler.std, generator=random)
    if filler.sparse >= 0:
        kept = min(1.0, filler.sparse / _first(tensor))
        tensor.mul_(torch.empty_like(tensor).bernoulli_(kept, generator=random))


def _positive_unitball(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    tensor.uniform_(0.0, 1.0, generator=random)
    rows = tensor.view(_first(tensor), -1)
    rows.div_(rows.sum(1, keepdim=True))


def _xavier(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    bound = math.sqrt(3.0 / _fan(tensor, filler))
    tensor.uniform_(-bound, bound, generator=random)


def _msra(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    deviation = math.sqrt(2.0 / _fan(tensor, filler)) * abs(filler.scale)
    tensor.normal_(0.0, deviation, generator=random)


def _bilinear(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    if tensor.dim() != 4 or tensor.shape[2] != tensor.shape[3]:
        raise CaffeError(
            "a bilinear filler needs four axes and a square kernel, not the shape "
            f"{list(tensor.shape)}"
        )
    width = tensor.shape[3]
    factor = math.ceil(width / 2)
    centre = (width - 1) / (2.0 * factor)
    line = 1 - (torch.arange(width, dtype=torch.float64) / factor - centre).abs()
    tensor.copy_(line[:, None] * line[None, :])


def _gabor(tensor: torch.Tensor, filler: Any, random: torch.Generator) -> None:
    """Fill with gratings under a Gaussian: eight directions per wavelength, channels alike.

    Every kernel has mean 0 and norm 1. If channels are colours, the gratings are gray.
    """
    if tensor.dim() != 4 or tensor.shape[1] != 3 or tensor.shape[2] != tensor.shape[3]:
        raise CaffeError(
            "a gabor filler needs three channels and a square kernel, not the shape "
            f"{list(tensor.shape)}"
        )
    count, width = tensor.shape[0], tensor.shape[3]
    if width < 3:
        raise CaffeError(f"a gabor filler needs a kernel of at least 3, not {width}")
    place = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    down, right = torch.meshgrid(place, place, indexing="ij")
    envelope = torch.exp(-(down.square() + right.square()) / (2 * (width / 4) ** 2))
    for index in range(count):
        octave, direction = divmod(index, _DIRECTIONS)
        angle = math.pi * direction / _DIRECTIONS
        wavelength = max(2.0, width / (1 + octave / 2))
        along = right * math.cos(angle) + down * math.sin(angle)
        phase = math.pi / 2 * (octave % 2)
        kernel = envelope * torch.cos(2 * math.pi * along / wavelength + phase)
        kernel = (kernel - kernel.mean()).expand(3, width, width)
        tensor[index].copy_(kernel / kernel.norm())


def _first(tensor: torch.Tensor) -> int:
    return max(1, tensor.shape[0]) if tensor.dim() else 1


def _fan(tensor: torch.Tensor, filler: Any) -> float:
    """Return the n of `xavier` and `msra`."""
    count = max(1, tensor.numel())
    fan_in = count / _first(tensor)
    fan_out = count / max(1, tensor.shape[1]) if tensor.dim() > 1 else float(count)
    if filler.variance_norm == _FAN_OUT:
        return fan_out
    if filler.variance_norm == _AVERAGE:
        return (fan_in + fan_out) / 2
    return fan_in


_fillers: dict[str, Callable[[torch.Tensor, Any, torch.Generator], None]] = {
    "bilinear": _bilinear,
    "constant": _constant,
    "gabor": _gabor,
    "gaussian": _gaussian,
    "msra": _msra,
    "positive_unitball": _positive_unitball,
    "uniform": _uniform,
    "xavier": _xavier,
}
