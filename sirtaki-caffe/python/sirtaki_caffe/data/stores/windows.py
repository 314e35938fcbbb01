"""Window files: boxes of objects and background in images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.errors import CaffeError

_FARTHEST = 1 << 31


class Window(NamedTuple):
    """A box; the pixels of both corners are part of it.

    Args:
        line: Its line in the file.
        image: The image's path.
        label: The class of the object that it overlaps.
        overlap: The overlap, 0 to 1.
        left: Its first column.
        top: Its first row.
        right: Its last column.
        bottom: Its last row.
    """

    line: int
    image: str
    label: int
    overlap: float
    left: int
    top: int
    right: int
    bottom: int


def read_windows(path: Path) -> list[Window]:
    """Return the boxes of a window file.

    Each image has a line "# number", then the path, channels, height, width and number of boxes,
    one per line, then a line for each box: class, overlap, left, top, right, bottom.

    Raises:
        CaffeError: The file cannot be read, or a line is invalid.
    """
    try:
        lines = enumerate(path.read_text(errors="surrogateescape").splitlines(), 1)
    except OSError as error:
        raise CaffeError(f"{path}: {error.strerror}") from error
    windows: list[Window] = []
    for number, line in lines:
        if not line.strip():
            continue
        try:
            windows += _of_image(line, lines)
        except ValueError as error:
            why = "what begins here is no image's list of boxes"
            raise CaffeError(f"{path}, line {number}: {why}") from error
    return windows


def _of_image(header: str, lines: Iterator[tuple[int, str]]) -> list[Window]:
    if not header.startswith("#"):
        raise ValueError(header)
    image, *sizes = (next(lines, (0, ""))[1].strip() for _ in range(5))
    windows = []
    for _ in range([int(size) for size in sizes][-1]):
        number, line = next(lines, (0, ""))
        label, overlap, *corners = line.split()
        left, top, right, bottom = map(int, corners)
        if max(map(abs, (left, top, right, bottom))) > _FARTHEST:
            raise ValueError(line)
        windows.append(Window(number, image, int(label), float(overlap), left, top, right, bottom))
    return windows


def warp(
    image: np.ndarray, window: Window, size: int, context: int, square: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return a box as an image of size x size, with a border of its surroundings.

    Args:
        image: Array of shape (channels, height, width).
        window: The box.
        size: The size of the result.
        context: The width of its border.
        square: Whether to extend the box to a square around its centre; otherwise it is warped.

    Returns:
        The pixels, and a mask of (size, size): False where the box leaves the image.

    Raises:
        CaffeError: The box lies outside the image.
    """
    left, top = float(window.left), float(window.top)
    width, height = window.right - left + 1, window.bottom - top + 1
    if square:
        side = max(width, height)
        left, top = left - (side - width) / 2, top - (side - height) / 2
        width = height = side
    grown = size / (size - 2 * context)
    left, top = left - width * (grown - 1) / 2, top - height * (grown - 1) / 2
    width, height = width * grown, height * grown
    inside_x = _inside(left, width, image.shape[2], size)
    inside_y = _inside(top, height, image.shape[1], size)
    if inside_x is None or inside_y is None:
        raise CaffeError("the box lies outside its image")
    part = image[:, inside_y[0], inside_x[0]]
    made = np.zeros((len(image), size, size), image.dtype)
    mask = np.zeros((size, size), bool)
    rows, columns = inside_y[1], inside_x[1]
    made[:, rows, columns] = resize(part, rows.stop - rows.start, columns.stop - columns.start)
    mask[rows, columns] = True
    return made, mask


def _inside(start: float, length: float, limit: int, size: int) -> tuple[slice, slice] | None:
    """Return the part of a span within the image: there, and in the result."""
    if length <= 0:
        return None
    first, last = max(0, round(start)), min(limit, round(start + length))
    if first >= last:
        return None
    scale = size / length
    begin = min(size - 1, max(0, round((first - start) * scale)))
    end = min(size, max(begin + 1, round((last - start) * scale)))
    return slice(first, last), slice(begin, end)
