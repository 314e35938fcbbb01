"""ImageData: image files that a text file lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sirtaki_caffe.data.images import read_image
from sirtaki_caffe.data.layers.base import ImageLayer
from sirtaki_caffe.data.order import Order, draws, seed_of
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.data.stores.lists import Listed, read_image_list
from sirtaki_caffe.data.transform import Cut
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import layer


@layer("ImageData")
class ImageData(ImageLayer):
    """Lines are distributed to the processes like Data's records."""

    source_file: ClassVar[str] = "image_data_layer.cpp"

    def param(self) -> Any:
        """See the base class."""
        return self.proto.image_data_param

    def open(self, source: str) -> None:
        """See the base class."""
        param = self.param()
        if bool(param.new_height) != bool(param.new_width):
            raise CaffeError("image_data_param: new_height and new_width go together")
        self._source = Path(source)
        self._lines = read_image_list(self._source)
        self.context.log(self.source_file, f"A total of {len(self._lines)} images.")
        self.reseeded()

    def reseeded(self) -> None:
        """See the base class."""
        param = self.param()
        self._order = Order(len(self._lines), self.seed if param.shuffle else None)
        self._skipped = 0
        if param.rand_skip:
            random = draws(seed_of(self.seed, "skip"), 0)
            self._skipped = int(random.integers(param.rand_skip))

    def read(self, number: int) -> tuple[str, Listed]:
        """See the base class; the file itself is read where it is decoded."""
        listed = self._lines[self._order.record(number + self._skipped)]
        return f"{self._source}, line {listed.line}", listed

    def made(self, content: Any, random: np.random.Generator) -> tuple[Cut, float]:
        """See the base class."""
        param = self.param()
        pixels = read_image(Path(param.root_folder + content.path), param.is_color)
        if param.new_height:
            pixels = resize(pixels, param.new_height, param.new_width)
        return self.transformer.cut(pixels, random), float(content.label)
