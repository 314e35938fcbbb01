"""WindowData: random boxes of objects and of background in images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sirtaki_caffe.data.images import read_image
from sirtaki_caffe.data.layers.base import ImageLayer
from sirtaki_caffe.data.order import draws, seed_of
from sirtaki_caffe.data.stores.windows import Window, read_windows, warp
from sirtaki_caffe.data.transform import Cut
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import layer


@layer("WindowData")
class WindowData(ImageLayer):
    """A batch has the fraction `fg_fraction` of boxes that overlap an object, the rest background.

    Pixels outside of the image are the mean. `cache_images` has no effect.
    """

    source_file: ClassVar[str] = "window_data_layer.cpp"

    def param(self) -> Any:
        """See the base class."""
        return self.proto.window_data_param

    def open(self, source: str) -> None:
        """See the base class."""
        param = self.param()
        self._size = int(self.proto.transform_param.crop_size)
        if not self._size:
            raise CaffeError("transform_param: crop_size is needed")
        if 2 * param.context_pad >= self._size:
            raise CaffeError(f"a context_pad of {param.context_pad} leaves no room for the box")
        if param.crop_mode not in ("warp", "square"):
            raise CaffeError(f"crop_mode is '{param.crop_mode}': 'warp' and 'square' are known")
        windows = read_windows(Path(source))
        self._source = source
        self._foreground = [w for w in windows if w.overlap >= param.fg_threshold and w.label]
        self._background = [w._replace(label=0) for w in windows if w.overlap < param.bg_threshold]
        self._objects = int(self.batch * param.fg_fraction)
        if self._objects and not self._foreground:
            raise CaffeError(f"{source} has no box of overlap {param.fg_threshold:g} or more")
        if self._objects < self.batch and not self._background:
            raise CaffeError(f"{source} has no box of overlap below {param.bg_threshold:g}")

    def read(self, number: int) -> tuple[str, Window]:
        """See the base class; background comes first in a batch."""
        place = self.deal.item(number) % self.batch
        among = self._background
        if place >= self.batch - self._objects:
            among = self._foreground
        random = draws(seed_of(self.seed, "window"), number)
        window = among[int(random.integers(len(among)))]
        return f"{self._source}, line {window.line}", window

    def made(self, content: Any, random: np.random.Generator) -> tuple[Cut, float]:
        """See the base class."""
        param, size = self.param(), self._size
        image = read_image(Path(param.root_folder + content.image), True)
        square = param.crop_mode == "square"
        pixels, inside = warp(image, content, size, param.context_pad, square)
        mirrored = self.proto.transform_param.mirror and bool(random.integers(2))
        cut = self._place(pixels.astype(self.numeric), mirrored)
        mean = self.transformer.mean_of(cut)
        if len(mean):
            straight = mean[:, :, ::-1] if mirrored else mean
            cut.pixels[:, ~inside] = np.broadcast_to(straight, pixels.shape)[:, ~inside]
        return cut, float(content.label)

    def _place(self, pixels: np.ndarray, mirrored: bool) -> Cut:
        """Return the cut for a window, which uses the middle of the mean file."""
        channels, height, width = self.transformer.mean_shape
        if channels not in (0, 1, len(pixels)):
            raise CaffeError(f"the mean has {channels} channels, the image {len(pixels)}")
        if not self.proto.transform_param.mean_file:
            return Cut(pixels, 0, 0, mirrored)
        if min(height, width) < self._size:
            raise CaffeError(f"the mean of {height}x{width} is smaller than the crop")
        return Cut(pixels, (height - self._size) // 2, (width - self._size) // 2, mirrored)
