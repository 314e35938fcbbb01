"""Lists of files in text files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sirtaki_caffe.errors import CaffeError


class Listed(NamedTuple):
    """A line of an image list.

    Args:
        line: The line number, from 1.
        path: The path of the image.
        label: The class of the image.
    """

    line: int
    path: str
    label: int


def read_image_list(path: Path) -> list[Listed]:
    """Return a list of images: each line has a path and a label after its last blanks or tabs.

    Raises:
        CaffeError: The file cannot be read, a line is invalid, or there are no lines.
    """
    listed = []
    for number, line in _lines(path):
        *name, label = line.rsplit(maxsplit=1)
        if not name:
            why = "a path, a blank and a label are wanted"
            raise CaffeError(f"{path}, line {number}: {label!r}: {why}")
        try:
            listed.append(Listed(number, name[0], int(label)))
        except ValueError as error:
            raise CaffeError(f"{path}, line {number}: {label!r}: no whole number") from error
    if not listed:
        raise CaffeError(f"{path} lists no images")
    return listed


def read_pairs(path: Path) -> list[tuple[Listed, str]]:
    """Return a list of images and annotations: two paths separated by a blank on each line.

    Raises:
        CaffeError: The file cannot be read, a line is invalid, or there are no lines.
    """
    found = []
    for number, line in _lines(path):
        *image, annotation = line.rsplit(maxsplit=1)
        if not image:
            raise CaffeError(f"{path}, line {number}: an image, a blank and a file are wanted")
        found.append((Listed(number, image[0], -1), annotation))
    if not found:
        raise CaffeError(f"{path} lists no images")
    return found


def read_file_list(path: Path) -> list[Path]:
    """Return a list of files, one per line.

    Raises:
        CaffeError: The file cannot be read, or has no lines.
    """
    listed = [Path(line) for _, line in _lines(path)]
    if not listed:
        raise CaffeError(f"{path} lists no files")
    return listed


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, and their numbers."""
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError as error:
        raise CaffeError(f"{path}: {error.strerror}") from error
    numbered = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in numbered if line]
