"""Common checks of layers' parameters and bottoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.fillers import fill
from sirtaki_caffe.layers.base import Layer, Param, Shape

_MOST_ELEMENTS = 2**31 - 1  # elements of a blob, as in Caffe


def axis_in(layer: Layer, axis: int, rank: int, field: str = "axis") -> int:
    """Return an axis counted from the front; negative ones count from the back."""
    if not -rank <= axis < rank:
        raise layer.error(f"{field} is {axis}, but its bottom has {rank} axes")
    return axis % rank


def rank_of(layer: Layer, shape: Shape, rank: int) -> None:
    """Refuse a bottom with another number of axes."""
    if len(shape) != rank:
        raise layer.error(f"its bottom must have {rank} axes, not the shape {list(shape)}")


def same_shapes(layer: Layer, bottoms: Sequence[Shape]) -> None:
    """Refuse bottoms of different shapes."""
    for index, shape in enumerate(bottoms):
        if tuple(shape) != tuple(bottoms[0]):
            raise layer.error(
                f"its bottoms must have one shape, but bottom 0 is {list(bottoms[0])} and "
                f"bottom {index} is {list(shape)}"
            )


def same_counts(layer: Layer, bottoms: Sequence[Shape]) -> None:
    """Refuse bottoms with different numbers of elements."""
    for index, shape in enumerate(bottoms):
        if math.prod(shape) != math.prod(bottoms[0]):
            raise layer.error(
                f"its bottoms must have as many elements, but bottom 0 is {list(bottoms[0])} "
                f"and bottom {index} is {list(shape)}"
            )


def positive(layer: Layer, value: int, field: str) -> int:
    """Return a required number, which must be positive."""
    if value <= 0:
        raise layer.error(f"{field} must be given and be positive, not {value}")
    return int(value)


def filled(layer: Layer, shape: Shape, filler: Any, field: str) -> Param:
    """Return a learnable blob with the initial values of its filler.

    Args:
        layer: The layer that owns the blob.
        shape: The shape of the blob.
        filler: A FillerParameter.
        field: The filler's name in the layer's message.
    """
    if math.prod(shape) > _MOST_ELEMENTS:
        raise layer.error(f"a blob of shape {list(shape)} has more than 2^31 - 1 elements")
    data = torch.empty(shape, dtype=layer.context.dtype)
    try:
        fill(data, filler, layer.context.random)
    except CaffeError as error:
        raise layer.error(f"{field}: {error}") from error
    return Param(data)


def weights(layer: Layer, shape: Shape, outputs: int, field: str) -> list[Param]:
    """Return a layer's weights and, with `bias_term`, a bias for each output.

    Args:
        layer: The layer that owns them.
        shape: The shape of the weights.
        outputs: The number of outputs.
        field: The name of the parameter, in the layer's message, that has their fillers.
    """
    parameter = getattr(layer.proto, field)
    found = [filled(layer, shape, parameter.weight_filler, f"{field}.weight_filler")]
    if parameter.bias_term:
        found.append(filled(layer, (outputs,), parameter.bias_filler, f"{field}.bias_filler"))
    return found
