"""Lists of files in text files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sirtaki_caffe.errors import CaffeError


class Listed(NamedTuple):
    """A line of a list of images.

    Args:
        line: Its number, from 1.
        path: The image's.
        label: Its class.
    """

    line: int
    path: str
    label: int


def read_image_list(path: Path) -> list[Listed]:
    """A list of images: a path, a blank and a label on each line; the last blank separates.

    Raises:
        CaffeError: It cannot be read, a line is not so, or it has no lines.
    """
    listed = []
    for number, line in _lines(path):
        name, blank, label = line.rpartition(" ")
        try:
            listed.append(Listed(number, name.rstrip(), int(label)))
        except ValueError as error:
            why = "a path, a blank and a label are wanted" if not blank else "no whole number"
            raise CaffeError(f"{path}, line {number}: {label!r}: {why}") from error
        if not name:
            raise CaffeError(f"{path}, line {number}: a path, a blank and a label are wanted")
    if not listed:
        raise CaffeError(f"{path} lists no images")
    return listed


def read_pairs(path: Path) -> list[tuple[Listed, str]]:
    """A list of images and their annotations: two paths with a blank between on each line.

    Raises:
        CaffeError: It cannot be read, a line is not so, or it has no lines.
    """
    found = []
    for number, line in _lines(path):
        image, _, annotation = line.rpartition(" ")
        if not image:
            raise CaffeError(f"{path}, line {number}: an image, a blank and a file are wanted")
        found.append((Listed(number, image.rstrip(), -1), annotation))
    if not found:
        raise CaffeError(f"{path} lists no images")
    return found


def read_file_list(path: Path) -> list[Path]:
    """A list of files, one a line.

    Raises:
        CaffeError: It cannot be read, or has no lines.
    """
    listed = [Path(line) for _, line in _lines(path)]
    if not listed:
        raise CaffeError(f"{path} lists no files")
    return listed


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines that are not blank, and their numbers."""
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError as error:
        raise CaffeError(f"{path}: {error.strerror}") from error
    numbered = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in numbered if line]
