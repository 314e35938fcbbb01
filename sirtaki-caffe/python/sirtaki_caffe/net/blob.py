"""Blobs: the data between layers, as memory that scripts may read and write."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

Shape = tuple[int, ...]


class Blob:
    """The data between two layers: values and their gradient, created on demand.

    After a script has requested its memory (`hold`), every later forward writes its values there,
    as in Caffe; otherwise a forward replaces the tensor.

    Args:
        name: Its name in the net.
        shape: Its shape, as far as known when building.
        dtype: The type of values and gradient.
    """

    __slots__ = ("_data", "_data_held", "_diff", "_diff_held", "_shape", "dtype", "name")

    def __init__(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        self.name = name
        self.dtype = dtype
        self._shape: Shape = tuple(shape)
        self._data: torch.Tensor | None = None
        self._diff: torch.Tensor | None = None
        self._data_held = False
        self._diff_held = False

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self._shape

    @property
    def data(self) -> torch.Tensor:
        """Return its values; zeros until values are set."""
        if self._data is None:
            self._data = torch.zeros(self._shape, dtype=self.dtype)
        return self._data

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        self.put(values)

    @property
    def diff(self) -> torch.Tensor | None:
        """Its gradient; None: zeros."""
        return self._diff

    @diff.setter
    def diff(self, values: torch.Tensor | None) -> None:
        self.put_diff(values)

    @property
    def held(self) -> bool:
        """Return whether a script holds the memory of the values."""
        return self._data_held

    def put(self, values: torch.Tensor) -> None:
        """Set values that nothing else writes to."""
        if self._data_held and self._data is not None and self._data.shape == values.shape:
            # Hidden from autograd: a graph's saved data is separate, or is meant to be read again
            # in its current state, as in Caffe.
            self._data.data.copy_(values)
            return
        self._data = values
        self._data_held = False
        if values.shape != self._shape:
            self._shape = tuple(values.shape)
            self._diff, self._diff_held = None, False

    def put_diff(self, gradient: torch.Tensor | None) -> None:
        """Set the gradient; None: zeros."""
        if self._diff_held and self._diff is not None:
            if gradient is None:
                self._diff.zero_()
                return
            if gradient.shape == self._diff.shape:
                self._diff.copy_(gradient)
                return
        self._diff = gradient
        self._diff_held = False

    def hold(self) -> torch.Tensor:
        """Return the values in their own memory, which is kept while the shape is."""
        if not self._data_held:
            self._data = self.data.detach().to("cpu").clone(memory_format=torch.contiguous_format)
            self._data_held = True
        return self.data

    def hold_diff(self) -> torch.Tensor:
        """Return the gradient in its own memory, which is kept while the shape is."""
        if self._diff is None:
            self._diff = torch.zeros(self._shape, dtype=self.dtype)
        elif not self._diff_held:
            self._diff = self._diff.clone(memory_format=torch.contiguous_format)
        self._diff_held = True
        return self._diff

    def reshape(self, shape: Sequence[int]) -> None:
        """Change the shape; values are kept if their number is unchanged, else zeroed."""
        new = tuple(shape)
        if new == self._shape:
            return
        if self._data is not None and math.prod(new) == math.prod(self._shape):
            self._data = self._data.reshape(new)
        else:
            self._data, self._data_held = None, False
        self._shape = new
        self._diff, self._diff_held = None, False
