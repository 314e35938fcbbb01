"""An annotated image on its way to an item of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.boxes import Boxes
from sirtaki_caffe.data.annotated.distortion import check_distortion, distorted
from sirtaki_caffe.data.annotated.fitting import fitted
from sirtaki_caffe.data.annotated.noise import check_noise, noisy
from sirtaki_caffe.data.annotated.sampling import check_samplers, sample
from sirtaki_caffe.data.transform import Cut, Transformer
from sirtaki_caffe.errors import CaffeError

_GRAY_GROUND = 32  # of what expansion adds to images that are not encoded


class Preparing:
    """Distorts, expands, samples, resizes and crops an image together with its boxes.

    Args:
        param: A TransformationParameter.
        samplers: BatchSamplers.
        transformer: For the mean, and the last crop.

    Raises:
        CaffeError: Fields make no sense.
    """

    def __init__(self, param: Any, samplers: Sequence[Any], transformer: Transformer) -> None:
        self._param = param
        self._samplers = samplers
        self._transformer = transformer
        self._emit = param.emit_constraint if param.HasField("emit_constraint") else None
        check_samplers(samplers)
        if param.HasField("distort_param"):
            check_distortion(param.distort_param)
        if param.HasField("noise_param"):
            check_noise(param.noise_param)
        if param.HasField("expand_param") and param.expand_param.max_expand_ratio <= 1:
            raise CaffeError("expand_param: max_expand_ratio must be above 1")

    def made(
        self, image: np.ndarray, boxes: Boxes, encoded: bool, random: np.random.Generator
    ) -> tuple[Cut, Boxes]:
        """The item, and the boxes that are left in it.

        Args:
            image: Of shape (channels, height, width).
            boxes: In it.
            encoded: It came from an image file; others keep their colours and their size.
            random: The item's random numbers.
        """
        param = self._param
        if param.HasField("distort_param") and encoded and len(image) == 3:
            image = distorted(image, param.distort_param, random)
        if param.HasField("expand_param"):
            image, boxes = self._expanded(image, boxes, encoded, random)
        if self._samplers:
            part = sample(self._samplers, boxes.corners, random)
            if part is not None:
                image, boxes = self._part(image, boxes, part)
        if param.HasField("resize_param") and (encoded or self._other_size(image)):
            if not encoded:
                raise CaffeError(
                    "is not encoded, and such images are not resized: make the database with "
                    "--encoded, or in the size of resize_param"
                )
            image, boxes = fitted(image, boxes, param.resize_param, random)
        if param.HasField("noise_param"):
            image = noisy(image, param.noise_param, random)
        return self._cropped(image, boxes, random)

    def _other_size(self, image: np.ndarray) -> bool:
        resize = self._param.resize_param
        return tuple(image.shape[1:]) != (resize.height, resize.width)

    def _expanded(
        self, image: np.ndarray, boxes: Boxes, encoded: bool, random: np.random.Generator
    ) -> tuple[np.ndarray, Boxes]:
        """The image somewhere in a larger one."""
        param = self._param.expand_param
        if random.random() > param.prob:
            return image, boxes
        ratio = random.uniform(1, param.max_expand_ratio)
        channels, height, width = image.shape
        high, wide = int(height * ratio), int(width * ratio)
        top, left = int(random.uniform(0, high - height)), int(random.uniform(0, wide - width))
        ground = np.zeros((channels, high, wide), image.dtype)
        if not encoded:
            ground[...] = _GRAY_GROUND
        elif self._param.mean_value:
            ground[...] = np.array(self._param.mean_value)[:, None, None]
        ground[:, top : top + height, left : left + width] = image
        part = np.array(
            [-left / width, -top / height, (wide - left) / width, (high - top) / height]
        )
        return ground, boxes.seen_from(part, self._emit)

    def _part(self, image: np.ndarray, boxes: Boxes, part: np.ndarray) -> tuple[np.ndarray, Boxes]:
        height, width = image.shape[1:]
        left, top = int(part[0] * width), int(part[1] * height)
        wide = max(1, int((part[2] - part[0]) * width))
        high = max(1, int((part[3] - part[1]) * height))
        cut = image[:, top : top + high, left : left + wide]
        return cut, boxes.seen_from(part, self._emit)

    def _cropped(
        self, image: np.ndarray, boxes: Boxes, random: np.random.Generator
    ) -> tuple[Cut, Boxes]:
        cut = self._transformer.crop(image, random)
        height, width = image.shape[1:]
        high, wide = cut.pixels.shape[1:]
        part = np.array([cut.left, cut.top, cut.left + wide, cut.top + high])
        boxes = boxes.seen_from(part / np.array([width, height] * 2), self._emit)
        return cut, boxes.mirrored() if cut.mirrored else boxes
