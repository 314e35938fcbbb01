"""The transformation of images by `transform_param`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.data.augment import random_aspect_ratio, random_resize, resized
from sirtaki_caffe.data.resize import LARGEST_SIDE
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import read_mean
from sirtaki_caffe.proto.schema import TRAIN


@dataclass
class Cut:
    """The part of an image that becomes an item, before conversion to numbers.

    Args:
        pixels: Array of shape (channels, height, width).
        top: Its first row in the image.
        left: Its first column in the image.
        mirrored: Whether left and right are exchanged.
    """

    pixels: np.ndarray
    top: int
    left: int
    mirrored: bool


class Transformer:
    """Crops, mirrors, subtracts the mean and scales.

    For each item, random numbers are drawn in this order: mirroring, Intel's resizing, the crop's
    row and its column.

    Args:
        param: A TransformationParameter.
        phase: TRAIN or TEST; crops are random in TRAIN and central in TEST.
        dtype: The type of the numbers.

    Raises:
        CaffeError: Its fields are inconsistent, or the mean file cannot be read.
    """

    def __init__(self, param: Any, phase: int, dtype: np.dtype[Any]) -> None:
        self._param = param
        self._train = phase == TRAIN
        self._dtype = dtype
        self._crop = (param.crop_h or param.crop_size, param.crop_w or param.crop_size)
        if bool(self._crop[0]) != bool(self._crop[1]):
            raise CaffeError("transform_param: crop_h and crop_w go together")
        if param.mean_file and param.mean_value:
            raise CaffeError("transform_param: either mean_file or mean_value, not both")
        if param.pad > LARGEST_SIDE:
            raise CaffeError(f"transform_param: a pad of {param.pad} is above {LARGEST_SIDE}")
        if param.force_color and param.force_gray:
            raise CaffeError("transform_param: either force_color or force_gray, not both")
        self._mean = np.zeros((0, 1, 1), dtype)
        if param.mean_file:
            self._mean = read_mean(Path(param.mean_file)).astype(dtype)
        elif param.mean_value:
            self._mean = np.array(param.mean_value, dtype)[:, None, None]
        #: The shape of the mean: of an image, or of its channels.
        self.mean_shape = self._mean.shape
        # A mirrored crop matches this in memory order, which makes subtraction faster.
        self._mirrored_mean = np.ascontiguousarray(self._mean[:, :, ::-1])

    @property
    def color(self) -> bool | None:
        """Return whether encoded images become BGR or gray; None: unchanged."""
        if self._param.force_color:
            return True
        return False if self._param.force_gray else None

    def cut(self, image: np.ndarray, random: np.random.Generator) -> Cut:
        """Draw an image's random numbers, resize it and choose its crop.

        Raises:
            CaffeError: The image does not match the crop or the mean.
        """
        mirrored = self._param.mirror and bool(random.integers(2))
        if self._param.bgr2rgb:
            image = image[::-1]
        image = self._resized(image, random)
        pad = self._param.pad
        if pad:
            image = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
        return self._crop_of(image, mirrored, random)

    def crop(self, image: np.ndarray, random: np.random.Generator) -> Cut:
        """Return the crop like `cut`, for an image that already has its size."""
        mirrored = self._param.mirror and bool(random.integers(2))
        return self._crop_of(image, mirrored, random)

    def _crop_of(self, image: np.ndarray, mirrored: bool, random: np.random.Generator) -> Cut:
        height, width = self._crop if self._crop[0] else image.shape[1:]
        space = (image.shape[1] - height, image.shape[2] - width)
        if min(space) < 0:
            raise CaffeError(
                f"an image of {image.shape[1]}x{image.shape[2]} is smaller than the crop "
                f"of {height}x{width}"
            )
        self._check_mean(image.shape)
        if self._train and self._crop[0]:
            top, left = (int(random.integers(most + 1)) for most in space)
        else:
            top, left = space[0] // 2, space[1] // 2
        return Cut(image[:, top : top + height, left : left + width], top, left, mirrored)

    def numbers(self, cuts: Sequence[Cut]) -> np.ndarray:
        """Return the batch of cuts with equal shapes."""
        batch = np.empty((len(cuts), *cuts[0].pixels.shape), self._dtype)
        for numbers, cut in zip(batch, cuts, strict=True):
            numbers[...] = cut.pixels[:, :, ::-1] if cut.mirrored else cut.pixels
            if len(self._mean):
                numbers -= self.mean_of(cut)
            if self._param.scale != 1:
                numbers *= self._param.scale
        return batch

    def mean_of(self, cut: Cut) -> np.ndarray:
        """Return the mean to subtract from a cut; empty without a mean."""
        if not self._param.mean_file:
            return self._mean
        _, height, width = cut.pixels.shape
        rows = slice(cut.top, cut.top + height)
        if not cut.mirrored:
            return self._mean[:, rows, cut.left : cut.left + width]
        right = self._mean.shape[2] - cut.left
        return self._mirrored_mean[:, rows, right - width : right]

    def _resized(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        param = self._param
        if param.HasField("random_resize_param"):
            image = random_resize(image, param.random_resize_param, random)
        if param.HasField("random_aspect_ratio_param"):
            if not self._crop[0] or self._crop[0] != self._crop[1]:
                raise CaffeError("transform_param: random_aspect_ratio_param needs crop_size")
            ratio = param.random_aspect_ratio_param
            image = random_aspect_ratio(image, ratio, self._crop[0], random)
        if param.HasField("resize_param"):
            image = resized(image, param.resize_param, random)
        return image

    def _check_mean(self, shape: tuple[int, ...]) -> None:
        mean = self._mean.shape
        if self._param.mean_file and mean != shape:
            raise CaffeError(
                f"{self._param.mean_file} is a mean of {_by(mean)}, the image of {_by(shape)} "
                f"(channels, height, width)"
            )
        if self._param.mean_value and mean[0] not in (1, shape[0]):
            raise CaffeError(
                f"transform_param has {mean[0]} mean_value for an image of {shape[0]} channels: "
                f"give 1 or {shape[0]}"
            )


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
