"""Blobs for scripts: NumPy arrays that can be written in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sirtaki_caffe.layers.base import Param, Shape
from sirtaki_caffe.net.blob import Blob

Array = npt.NDArray[Any]


class ArrayBlob:
    """Values and their gradient, in memory that is kept while the shape is.

    Args:
        blob: The net's blob that owns the memory.
    """

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    @property
    def data(self) -> Array:
        """The values; writing to them changes the net's."""
        return _view(self._blob.hold())

    @property
    def diff(self) -> Array:
        """The gradient; writing to it changes the net's."""
        return _view(self._blob.hold_diff())

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self._blob.shape

    def reshape(self, *shape: int) -> None:
        """Change the shape; values are kept if their number is unchanged, else zeroed."""
        self._blob.reshape(shape)

    @property
    def count(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def num(self) -> int:
        """The first of four sizes."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """The second of four sizes; 1 if there are fewer."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """The third of four sizes; 1 if there are fewer."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """The last of four sizes; 1 if there are fewer."""
        return self._legacy(3)

    def _legacy(self, axis: int) -> int:
        shape = self.shape
        if len(shape) > 4:
            raise ValueError(f"a blob of {len(shape)} axes has no num, channels, height and width")
        return shape[axis] if axis < len(shape) else 1


class ParamBlob(ArrayBlob):
    """A layer's weights or biases.

    Args:
        param: The param that owns the memory.
    """

    def __init__(self, param: Param) -> None:
        self._param = param

    @property
    def data(self) -> Array:
        """The values; writing to them changes the layer's."""
        return _view(self._param.in_order())

    @property
    def diff(self) -> Array:
        """The gradient; writing to it changes the layer's."""
        return _view(self._param.owner.diff_in_order().view(self.shape))

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return tuple(self._param.data.shape)

    def reshape(self, *shape: int) -> None:
        """Change the shape; values are kept if their number is unchanged, else zeroed."""
        param = self._param
        if math.prod(shape) == self.count:
            values = param.data.detach().reshape(shape)
        else:
            values = param.data.detach().new_zeros(shape)
        param.data = values.requires_grad_(param.data.requires_grad)
        param.owner.diff = None


def _view(tensor: torch.Tensor) -> Array:
    array: Array = np.asarray(tensor.numpy())
    return array
