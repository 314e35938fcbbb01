"""Images with boxes made as large as `resize_param` says."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.boxes import Boxes
from sirtaki_caffe.data.augment import interpolation, padded
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.errors import CaffeError

_FIT_SMALL, _FIT_LARGE = 2, 3


def fitted(
    image: np.ndarray, boxes: Boxes, param: Any, random: np.random.Generator
) -> tuple[np.ndarray, Boxes]:
    """The image in its new size, and where its boxes are in it; `prob` has no effect.

    Args:
        image: Of shape (channels, height, width).
        boxes: Its boxes.
        param: A ResizeParameter.
        random: The item's random numbers.

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
