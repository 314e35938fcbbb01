"""Preparation of an annotated image as an item of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.boxes import Boxes
from sirtaki_caffe.data.annotated.distortion import check_distortion, distorted
from sirtaki_caffe.data.annotated.noise import check_noise, noisy
from sirtaki_caffe.data.annotated.sampling import check_samplers, sample
from sirtaki_caffe.data.augment import interpolation, padded
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.data.transform import Cut, Transformer
from sirtaki_caffe.errors import CaffeError

_GRAY_GROUND = 32  # the value of pixels that expansion adds to images that are not encoded


class Preparing:
    """Distorts, expands, samples, resizes and crops an image together with its boxes.

    Args:
        param: A TransformationParameter.
        samplers: BatchSamplers.
        transformer: The transformer of the mean and the last crop.

    Raises:
        CaffeError: A field is invalid.
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
        """Return the item and its remaining boxes.

        Args:
            image: Array of shape (channels, height, width).
            boxes: The boxes in the image.
            encoded: Whether it is from an image file; others keep their colours and size.
            random: The item's random generator.
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
        """Return the image at a random position in a larger one."""
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


_FIT_SMALL, _FIT_LARGE = 2, 3


def fitted(
    image: np.ndarray, boxes: Boxes, param: Any, random: np.random.Generator
) -> tuple[np.ndarray, Boxes]:
    """Return the resized image and the positions of its boxes; `prob` has no effect.

    Args:
        image: Array of shape (channels, height, width).
        boxes: Its boxes.
        param: A ResizeParameter.
        random: The item's random generator.

    Raises:
        CaffeError: height or width is missing.
    """
    if not (param.height and param.width):
        raise CaffeError("resize_param: height and width are needed")
    how = interpolation(param, random)
    shape, wanted = image.shape[2] / image.shape[1], param.width / param.height
    wide = (max(1, int(param.width / shape)), param.width)
    high = (param.height, max(1, int(shape * param.height)))
    if param.resize_mode == _FIT_SMALL:
        size = wide if shape < wanted else high
        return resize(image, size[0], size[1], how), boxes
    if param.resize_mode != _FIT_LARGE:
        return resize(image, param.height, param.width, how), boxes.clipped()
    size = wide if shape > wanted else high
    inner = resize(image, size[0], size[1], how)
    corners = boxes.corners.copy()
    if shape > wanted:
        side, full, axis = param.width / shape, param.height, 1
    else:
        side, full, axis = shape * param.height, param.width, 0
    corners[:, axis::2] = ((full - side) / 2 + corners[:, axis::2] * side) / full
    ground = padded(inner, (param.height, param.width), param)
    return ground, Boxes(corners, boxes.kinds).clipped()
