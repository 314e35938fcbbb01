"""Files beside a database: names of labels, and names and sizes of images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import message_class
from sirtaki_caffe.proto.text import parse


@dataclass(frozen=True)
class ImageSize:
    """An image's name and its size in pixels."""

    name: str
    height: int
    width: int


def read_label_map(path: str | Path) -> dict[int, str]:
    """Return the name of each label.

    Raises:
        CaffeError: The file cannot be read, or has a label or a name twice.
    """
    message = parse(read_text(path), message_class("LabelMap"), str(path))
    names: dict[int, str] = {}
    for item in message.item:
        if item.label in names:
            raise CaffeError(f"{path}: label {item.label} is there twice")
        if item.name in names.values():
            raise CaffeError(f"{path}: the name '{item.name}' is there twice")
        names[item.label] = item.name
    return names


def read_sizes(path: str | Path) -> list[ImageSize]:
    """Return the lines of a file of `name height width`.

    Raises:
        CaffeError: The file cannot be read, or has an invalid line.
    """
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            found.append(ImageSize(words[0], int(words[1]), int(words[2])))
        except (IndexError, ValueError):
            raise CaffeError(f"{path}:{number}: expected 'name height width'") from None
    return found


def read_text(path: str | Path) -> str:
    """Return the contents of a text file.

    Raises:
        CaffeError: It cannot be read.
    """
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CaffeError(f"{path}: {error}") from error
