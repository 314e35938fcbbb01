"""Intel's resizing of images: to a random size, to a random shape, to a fixed size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.errors import CaffeError


def random_resize(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    """Resize the shorter side to a random length between min_size and max_size."""
    low, high = param.min_size, param.max_size
    if not 0 < low <= high:
        raise CaffeError(f"random_resize_param: min_size {low} and max_size {high} are no range")
    return shorter_side(image, int(random.integers(low, high + 1)), _how(param, random))


def random_aspect_ratio(
    image: np.ndarray, param: Any, size: int, random: np.random.Generator
) -> np.ndarray:
    """Crop a part of random area and shape, and resize it to size x size.

    If none fits in max_attempt draws, resize the whole image's shorter side to size.
    """
    area = image.shape[1] * image.shape[2]
    change = param.aspect_ratio_change
    if not (0 < param.min_area_ratio <= param.max_area_ratio and change > 0):
        raise CaffeError(
            "random_aspect_ratio_param: min_area_ratio <= max_area_ratio and "
            "aspect_ratio_change must be above 0"
        )
    for _ in range(param.max_attempt):
        side = math.sqrt(_thousandths(param.min_area_ratio, param.max_area_ratio, random) * area)
        ratio = _thousandths(min(change, 1 / change), max(change, 1 / change), random)
        height, width = int(side * ratio), int(side / ratio)
        if random.integers(2):
            height, width = width, height
        if 0 < height <= image.shape[1] and 0 < width <= image.shape[2]:
            top = int(random.integers(image.shape[1] - height + 1))
            left = int(random.integers(image.shape[2] - width + 1))
            part = image[:, top : top + height, left : left + width]
            return resize(part, size, size, _how(param, random))
    return shorter_side(image, size, _how(param, random))


def resized(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    """Return an image resized according to `resize_param`."""
    if random.random() >= param.prob:
        return image
    _, height, width = image.shape
    wanted = (param.height, param.width)
    how = interpolation(param, random)
    mode = param.DESCRIPTOR.enum_types_by_name["Resize_mode"].values_by_number
    kind = mode[param.resize_mode].name
    if not all(wanted):
        raise CaffeError("resize_param: height and width are needed")
    if kind == "WARP":
        return resize(image, *wanted, how)
    if kind == "FIT_SMALL_SIZE":
        least = (param.height_scale or param.height, param.width_scale or param.width)
        factor = max(least[0] / height, least[1] / width)
        return resize(image, _scaled(height, factor), _scaled(width, factor), how)
    factor = min(wanted[0] / height, wanted[1] / width)
    fitted = resize(image, _scaled(height, factor), _scaled(width, factor), how)
    return padded(fitted, wanted, param)


def shorter_side(image: np.ndarray, size: int, how: str) -> np.ndarray:
    """Return the image with its shorter side of the given size, in proportion."""
    _, height, width = image.shape
    factor = size / min(height, width)
    if height <= width:
        return resize(image, size, max(size, _scaled(width, factor)), how)
    return resize(image, max(size, _scaled(height, factor)), size, how)


def _scaled(side: int, factor: float) -> int:
    return max(1, round(side * factor))


def _thousandths(low: float, high: float, random: np.random.Generator) -> float:
    return float(random.integers(round(low * 1000), round(high * 1000) + 1)) / 1000


def _how(param: Any, random: np.random.Generator) -> str:
    return interpolation(param.resize_param, random)


def interpolation(param: Any, random: np.random.Generator) -> str:
    """Return the name of a random interp_mode, or LINEAR without any."""
    if not param.interp_mode:
        return "LINEAR"
    names = param.DESCRIPTOR.enum_types_by_name["Interp_mode"].values_by_number
    return str(names[param.interp_mode[int(random.integers(len(param.interp_mode)))]].name)


def padded(image: np.ndarray, wanted: tuple[int, int], param: Any) -> np.ndarray:
    """Return the image padded to a size, in the middle."""
    channels, height, width = image.shape
    above, left = (wanted[0] - height) // 2, (wanted[1] - width) // 2
    sides = (
        (0, 0),
        (above, wanted[0] - height - above),
        (left, wanted[1] - width - left),
    )
    modes = param.DESCRIPTOR.enum_types_by_name["Pad_mode"].values_by_number
    kind = modes[param.pad_mode].name
    if kind != "CONSTANT":
        return np.pad(image, sides, "reflect" if kind == "MIRRORED" else "edge")
    values = list(param.pad_value) or [0.0]
    if len(values) not in (1, channels):
        raise CaffeError(f"resize_param: {len(values)} pad_value for {channels} channels")
    ground = np.empty((channels, *wanted), image.dtype)
    ground[...] = np.array(values)[:, None, None]
    ground[:, above : above + height, left : left + width] = image
    return ground
