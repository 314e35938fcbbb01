"""Input, DummyData and MemoryData: blobs without files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from sirtaki_caffe.data.layers.base import DataLayer
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.fillers import fill
from sirtaki_caffe.layers.base import Shape, layer


@layer("Input")
class Input(DataLayer):
    """Blobs that the program writes to; zeros until then."""

    tops: ClassVar[tuple[int, int | None]] = (1, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the blobs."""
        del bottoms
        shapes = one_each(self, self.proto.input_param.shape, "shape")
        wanted = [tuple(shape.dim) for shape in shapes] or [(0,)] * len(self.proto.top)
        for shape in wanted:
            self.check_size(shape)
        self._values = [torch.zeros(shape, dtype=self.context.dtype) for shape in wanted]

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the blobs."""
        del bottoms
        return [tuple(value.shape) for value in self._values]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the blobs."""
        del bottoms
        return list(self._values)


@layer("DummyData")
class DummyData(DataLayer):
    """Filled blobs: constant ones once, others again for each batch."""

    tops: ClassVar[tuple[int, int | None]] = (1, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the blobs."""
        del bottoms
        param = self.proto.dummy_data_param
        self._fillers = one_each(self, param.data_filler, "data_filler")
        self._values = []
        for shape in self._wanted():
            self.check_size(shape)
            self._values.append(torch.zeros(shape, dtype=self.context.dtype))
        for place in range(len(self._values)):
            self._refill(place)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes from the parameters."""
        del bottoms
        return [tuple(value.shape) for value in self._values]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next batch."""
        del bottoms
        for place, filler in enumerate(self._fillers):
            if filler.type != "constant":
                self._values[place] = torch.empty_like(self._values[place])
                self._refill(place)
        return list(self._values)

    def _refill(self, place: int) -> None:
        if not self._fillers:
            return
        try:
            fill(self._values[place], self._fillers[place], self.context.random)
        except CaffeError as error:
            raise self.error(str(error)) from error

    def _wanted(self) -> list[Shape]:
        param = self.proto.dummy_data_param
        sides = (param.num, param.channels, param.height, param.width)
        if any(sides) == bool(param.shape):
            raise self.error("give its shape by shape, or by num, channels, height and width")
        if param.shape:
            return [tuple(shape.dim) for shape in one_each(self, param.shape, "shape")]
        names = ("num", "channels", "height", "width")
        columns = [one_each(self, side, name) for side, name in zip(sides, names, strict=True)]
        if not all(columns):
            raise self.error("num, channels, height and width go together")
        return list(zip(*columns, strict=True))


@layer("MemoryData")
class MemoryData(DataLayer):
    """Images and labels that the program passes by `reset`."""

    tops: ClassVar[tuple[int, int | None]] = (2, 2)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check its sizes."""
        del bottoms
        param = self.proto.memory_data_param
        self._shape = (param.batch_size, param.channels, param.height, param.width)
        if not all(self._shape):
            raise self.error("batch_size, channels, height and width must be at least 1")
        self.check_size(self._shape)
        self._images = self._labels = torch.zeros(0)
        self._at = 0

    def reset(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Use other images; the next batch begins with the first of them.

        Args:
            data: Array of (n, channels, height, width), n a multiple of the batch size.
            labels: The n labels.

        Raises:
            LayerError: Their shapes are inconsistent.
        """
        labels = np.asarray(labels)
        if data.shape[1:] != self._shape[1:] or not len(data) or len(data) % self._shape[0]:
            raise self.error(
                f"data of shape {data.shape} do not fit: a multiple of {self._shape[0]} images "
                f"of {'x'.join(map(str, self._shape[1:]))} is wanted"
            )
        if labels.size != len(data):
            raise self.error(f"{labels.size} labels for {len(data)} images")
        self._images = self.tensor(np.array(data))
        self._labels = self.tensor(np.array(labels).reshape(-1))
        self._at = 0

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes from the parameters."""
        del bottoms
        return [self._shape, self._shape[:1]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next batch, starting again after the last."""
        del bottoms
        if not len(self._images):
            raise self.error("it has no data: the program must call reset first")
        part = slice(self._at, self._at + self._shape[0])
        self._at = part.stop % len(self._images)
        return [self._images[part], self._labels[part]]


def one_each(layer: DataLayer, given: Sequence[Any], name: str) -> list[Any]:
    """Return a repeated field's value for each top, if given none, once, or for each.

    Raises:
        LayerError: The number of values differs.
    """
    tops = len(layer.proto.top)
    if len(given) not in (0, 1, tops):
        raise layer.error(f"{len(given)} {name} for {tops} tops: give 1 or {tops}")
    return list(given) * tops if len(given) == 1 else list(given)
