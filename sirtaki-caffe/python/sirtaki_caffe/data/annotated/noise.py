"""The effects of `noise_param` on an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.distortion import to_hsv
from sirtaki_caffe.data.images import decode_image, encode_image
from sirtaki_caffe.errors import CaffeError

_LUMA = np.array([0.114, 0.587, 0.299], np.float32)  # blue, green, red
_BLUR = np.exp(-np.square(np.arange(-3, 4)) / (2 * 1.5**2))


def check_noise(param: Any) -> None:
    """Refuse unsupported noise.

    Raises:
        CaffeError: The noise is not supported.
    """
    for name in ("hist_eq", "clahe", "convert_to_lab"):
        if getattr(param, name):
            raise CaffeError(f"noise_param: {name} is not supported; change the images beforehand")


def noisy(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    """Return an image of uint8 with noise; `prob` has no effect.

    Args:
        image: Array of shape (channels, height, width).
        param: A NoiseParameter.
        random: The item's random generator.
    """
    if param.decolorize and len(image) == 3:
        image = np.repeat(_bytes((image * _LUMA[:, None, None]).sum(0))[None], 3, 0)
    if param.gauss_blur:
        image = _blurred(image)
    if param.jpeg > 0:
        image = decode_image(encode_image(image, "jpg", quality=int(param.jpeg)), len(image) == 3)
    if param.erode:
        image = _eroded(image)
    if param.posterize:
        image = (image // 64 * 64 + 32).astype(np.uint8)
    if param.inverse:
        image = 255 - image
    if param.saltpepper:
        image = _salted(image, param.saltpepper_param, random)
    if param.convert_to_hsv and len(image) == 3:
        image = np.stack(to_hsv(image))
    return image


def _bytes(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.rint(values).clip(0, 255).astype(np.uint8)
    return found


def _blurred(image: np.ndarray) -> np.ndarray:
    values = np.pad(image.astype(np.float32), ((0, 0), (3, 3), (3, 3)), "reflect")
    weights = (_BLUR / _BLUR.sum()).astype(np.float32)
    height, width = image.shape[1:]
    rows = sum(w * values[:, at : at + height] for at, w in enumerate(weights))
    return _bytes(sum(w * rows[:, :, at : at + width] for at, w in enumerate(weights)))


def _eroded(image: np.ndarray) -> np.ndarray:
    values = np.pad(image, ((0, 0), (1, 1), (1, 1)), "edge")
    height, width = image.shape[1:]
    parts = [values[:, y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return np.asarray(np.minimum.reduce(parts))


def _salted(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    value = list(param.value) or [0.0]
    if len(value) not in (1, len(image)):
        raise CaffeError(f"saltpepper_param: {len(value)} value for {len(image)} channels")
    count = int(param.fraction * image.shape[1] * image.shape[2])
    image = image.copy()
    rows = random.integers(image.shape[1], size=count)
    columns = random.integers(image.shape[2], size=count)
    image[:, rows, columns] = _bytes(np.array(value))[:, None]
    return image
