"""Random colour distortion, with OpenCV's 8-bit arithmetic of hues."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirtaki_caffe.errors import CaffeError

_LEAST_CHANGE = 1e-3
_HUES = 180


def check_distortion(param: Any) -> None:
    """Check that ranges are valid.

    Raises:
        CaffeError: A range is invalid.
    """
    for name in ("brightness", "hue"):
        if getattr(param, f"{name}_delta") < 0:
            raise CaffeError(f"distort_param: {name}_delta must be 0 or more")
    for name in ("contrast", "saturation"):
        low, high = getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper")
        if not 0 <= low <= high:
            raise CaffeError(f"distort_param: needs 0 <= {name}_lower <= {name}_upper")


def distorted(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    """Return an image of (3, height, width), BGR and uint8, with distorted colours.

    Args:
        image: The image.
        param: A DistortionParameter.
        random: The item's random generator.
    """
    late_contrast = random.random() <= 0.5
    image = _brightness(image, param, random)
    if not late_contrast:
        image = _contrast(image, param, random)
    image = _saturation(image, param, random)
    image = _hue(image, param, random)
    if late_contrast:
        image = _contrast(image, param, random)
    if random.random() < param.random_order_prob:
        image = image[random.permutation(3)]
    return image


def _bytes(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.rint(values).clip(0, 255).astype(np.uint8)
    return found


def _brightness(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    if random.random() >= param.brightness_prob:
        return image
    delta = random.uniform(-param.brightness_delta, param.brightness_delta)
    return _bytes(image + np.float32(delta))


def _contrast(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    if random.random() >= param.contrast_prob:
        return image
    factor = random.uniform(param.contrast_lower, param.contrast_upper)
    return image if abs(factor - 1) <= _LEAST_CHANGE else _bytes(image * np.float32(factor))


def _saturation(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    if random.random() >= param.saturation_prob:
        return image
    factor = random.uniform(param.saturation_lower, param.saturation_upper)
    if abs(factor - 1) <= _LEAST_CHANGE:
        return image
    hue, saturation, value = to_hsv(image)
    return from_hsv(hue, _bytes(saturation * np.float32(factor)), value)


def _hue(image: np.ndarray, param: Any, random: np.random.Generator) -> np.ndarray:
    if random.random() >= param.hue_prob:
        return image
    delta = random.uniform(-param.hue_delta, param.hue_delta)
    if abs(delta) <= 0:
        return image
    hue, saturation, value = to_hsv(image)
    return from_hsv(_bytes(hue + np.float32(delta)), saturation, value)


def to_hsv(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hues of 0 to 179, saturations and values of 0 to 255, of a BGR image."""
    blue, green, red = image.astype(np.float32)
    value = image.max(0)
    span = value.astype(np.float32) - image.min(0)
    safe = np.where(span > 0, span, 1)
    saturation = 255 * span / np.where(value > 0, value, 1)
    hue = np.where(
        value == red,
        (green - blue) / safe,
        np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = np.rint(np.where(span > 0, hue, 0) * 30).astype(np.int32) % _HUES
    return hue.astype(np.uint8), _bytes(saturation), value


def from_hsv(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the BGR image; hues above 179 wrap around to 0."""
    sixth = (hue.astype(np.float32) % _HUES) / 30
    part = saturation.astype(np.float32) / 255
    bright = value.astype(np.float32)
    planes = []
    for shift in (1, 3, 5):  # blue, green, red
        place = (shift + sixth) % 6
        planes.append(bright - bright * part * np.minimum(place, 4 - place).clip(0, 1))
    return np.stack([_bytes(plane) for plane in planes])
