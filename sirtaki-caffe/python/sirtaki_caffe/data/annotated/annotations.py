"""Annotation files of images: VOC's XML, COCO's JSON, and lines of text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from sirtaki_caffe.errors import CaffeError


class Annotated(NamedTuple):
    """An object in an image, in pixels."""

    name: str
    corners: tuple[float, float, float, float]
    difficult: bool


class Annotations(NamedTuple):
    """The objects of an image, and its height and width if the file contains them, else 0."""

    objects: list[Annotated]
    height: int
    width: int


def read_annotations(path: Path, kind: str) -> Annotations:
    """Return the annotations in a file.

    Args:
        path: The file; a missing file has no objects.
        kind: "xml", "json" or "txt".

    Raises:
        CaffeError: The file is invalid.
    """
    if not path.exists():
        return Annotations([], 0, 0)
    try:
        return _READERS[kind](path.read_text())
    except (OSError, ValueError, KeyError, TypeError, ElementTree.ParseError) as error:
        raise CaffeError(f"{path}: no annotation as {kind} has it: {error!r}") from error


def _xml(text: str) -> Annotations:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("a document type is not read")
    root = ElementTree.fromstring(text)
    objects = []
    for each in root.iter("object"):
        box = each.find("bndbox")
        if box is None:
            raise ValueError("an object without bndbox")
        corners = [_number(box, side) for side in ("xmin", "ymin", "xmax", "ymax")]
        name = each.findtext("name")
        if name is None:
            raise ValueError("an object without name")
        difficult = (each.findtext("difficult") or "").strip() == "1"
        objects.append(Annotated(name.strip(), tuple(corners), difficult))  # type: ignore[arg-type]
    size = root.find("size")
    height, width = (
        0 if size is None or not size.findtext(side) else int(_number(size, side))
        for side in ("height", "width")
    )
    return Annotations(objects, height, width)


def _number(element: ElementTree.Element, side: str) -> float:
    """Return a number of pixels, as an integer like in Caffe."""
    text = (element.findtext(side) or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{side} {text!r} is not a number")
    return number


def _json(text: str) -> Annotations:
    found: Any = json.loads(text)
    objects = []
    for each in found["annotation"]:
        x, y, width, height = (float(number) for number in each["bbox"])
        corners = (x, y, x + width, y + height)
        objects.append(Annotated(str(each["category_id"]), corners, bool(each.get("iscrowd"))))
    image = found["image"]
    return Annotations(objects, int(image["height"]), int(image["width"]))


def _txt(text: str) -> Annotations:
    objects = []
    for line in text.splitlines():
        words = line.split()
        if words:
            label, *corners = words
            xmin, ymin, xmax, ymax = (float(number) for number in corners)
            objects.append(Annotated(str(int(label)), (xmin, ymin, xmax, ymax), False))
    return Annotations(objects, 0, 0)


_READERS: dict[str, Callable[[str], Annotations]] = {"xml": _xml, "json": _json, "txt": _txt}
