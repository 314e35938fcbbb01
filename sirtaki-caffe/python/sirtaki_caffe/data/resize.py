"""Resizing of images, with OpenCV's arithmetic.

A pixel's centre is at half a pixel; images are not smoothed before they are reduced.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from sirtaki_caffe.errors import CaffeError

LARGEST_SIDE = 1 << 14

Taps = tuple[np.ndarray, np.ndarray]  # (size, taps): the pixels, and their weights


def resize(image: np.ndarray, height: int, width: int, how: str = "LINEAR") -> np.ndarray:
    """Return an image of (channels, height, width) in another size and the same type.

    Args:
        image: uint8 or float32.
        height: The number of rows.
        width: The number of columns.
        how: LINEAR, AREA, NEAREST, CUBIC or LANCZOS4; AREA enlarges like LINEAR.

    Raises:
        CaffeError: The size is invalid.
    """
    if not (0 < height <= LARGEST_SIDE and 0 < width <= LARGEST_SIDE):
        raise CaffeError(f"cannot resize to {height}x{width}: sides are 1 to {LARGEST_SIDE}")
    _, old_height, old_width = image.shape
    if (old_height, old_width) == (height, width):
        return image
    if how == "AREA" and (height > old_height or width > old_width):
        how = "LINEAR"
    pixels = _along(np.ascontiguousarray(image), 2, _taps(old_width, width, how))
    pixels = _along(pixels, 1, _taps(old_height, height, how))
    if image.dtype != np.uint8 or how == "NEAREST":
        return pixels
    np.clip(pixels, 0, 255, out=pixels)
    pixels += 0.5
    return pixels.astype(np.uint8)


def _along(pixels: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    places, weights = taps
    if places.shape[1] == 1:
        return pixels.take(places[:, 0], axis)
    shape = [1, 1, 1]
    shape[axis] = len(places)
    total: np.ndarray = np.multiply(pixels.take(places[:, 0], axis), weights[:, 0].reshape(shape))
    for tap in range(1, places.shape[1]):
        total += pixels.take(places[:, tap], axis) * weights[:, tap].reshape(shape)
    return total


@functools.lru_cache(maxsize=256)
def _taps(old: int, new: int, how: str) -> Taps:
    scale = old / new
    if how == "NEAREST":
        places = np.minimum((np.arange(new) * scale).astype(np.int64), old - 1)
        return places[:, None], np.ones((new, 1), np.float32)
    if how == "AREA":
        return _area_taps(old, new)
    reach, weight = _KERNELS[how]
    centres = (np.arange(new) + 0.5) * scale - 0.5
    nearest = np.floor(centres).astype(np.int64)
    places = nearest[:, None] + np.arange(1 - reach, 1 + reach)
    weights = weight(np.abs(centres[:, None] - places))
    weights /= weights.sum(1, keepdims=True)
    return places.clip(0, old - 1), weights.astype(np.float32)


def _area_taps(old: int, new: int) -> Taps:
    """Return weights of pixels in proportion to their covered areas."""
    edges = np.arange(new + 1) * (old / new)
    first = np.floor(edges[:-1]).astype(np.int64)
    places = first[:, None] + np.arange(math.ceil(old / new) + 1)
    covered = np.minimum(places + 1, edges[1:, None]) - np.maximum(places, edges[:-1, None])
    weights = covered.clip(0) / (old / new)
    return places.clip(0, old - 1), weights.astype(np.float32)


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(0.0, 1 - distance))


def _cubic(distance: np.ndarray) -> np.ndarray:
    a = -0.75
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.asarray(np.where(distance <= 1, near, far))


def _lanczos4(distance: np.ndarray) -> np.ndarray:
    values = np.sinc(distance) * np.sinc(distance / 4)
    return np.asarray(np.where(distance < 4, values, 0.0))


_KERNELS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "LINEAR": (1, _linear),
    "CUBIC": (2, _cubic),
    "LANCZOS4": (4, _lanczos4),
}
