"""Files of detections, in the formats of VOC, COCO and ILSVRC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from sirtaki_caffe.data.annotated.label_map import ImageSize, read_label_map, read_sizes
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Layer

_FORMATS = ("VOC", "COCO", "ILSVRC")


def in_pixels(boxes: torch.Tensor, size: ImageSize, resize: Any = None) -> torch.Tensor:
    """Return clipped boxes in pixels of an image, without the padding of `resize_param`.

    Args:
        boxes: Array of shape (boxes, 4).
        size: The size of the image before resizing.
        resize: A ResizeParameter, or None.
    """
    boxes = boxes.clamp(0, 1)
    if resize is not None and resize.resize_mode == 3 and resize.height and resize.width:
        boxes = _without_padding(boxes, size, resize)
    return boxes * torch.tensor([size.width, size.height] * 2, dtype=boxes.dtype)


def _without_padding(boxes: torch.Tensor, size: ImageSize, resize: Any) -> torch.Tensor:
    shape = size.width / size.height
    boxes = boxes * torch.tensor([resize.width, resize.height] * 2, dtype=boxes.dtype)
    wide = shape > resize.width / resize.height
    width = resize.width if wide else resize.height * shape
    height = resize.width / shape if wide else resize.height
    left, top = (resize.width - width) / 2, (resize.height - height) / 2
    boxes = boxes - torch.tensor([left, top] * 2, dtype=boxes.dtype)
    return (boxes / torch.tensor([width, height] * 2, dtype=boxes.dtype)).clamp(0, 1)


class Saving:
    """Collects detections; writes the files after the last image, and starts again.

    Args:
        param: A SaveOutputParameter.
        classes: The number of classes.
        background: The class without a file.

    Raises:
        CaffeError: The format is unknown, or a file cannot be read.
    """

    def __init__(self, param: Any, classes: int, background: int) -> None:
        self._param = param
        self._names = read_label_map(param.label_map_file)
        self._sizes = read_sizes(param.name_size_file)
        self._labels = [label for label in range(classes) if label != background]
        missing = [label for label in self._labels if label not in self._names]
        if missing:
            raise CaffeError(f"{param.label_map_file}: has no name for label {missing[0]}")
        self._count = int(param.num_test_image) or len(self._sizes)
        if self._count > len(self._sizes):
            raise CaffeError(
                f"num_test_image is {self._count}, {param.name_size_file} has "
                f"{len(self._sizes)} lines"
            )
        if param.output_format not in _FORMATS:
            raise CaffeError(f"output_format must be one of {', '.join(_FORMATS)}")
        self._image = 0
        self._rows: list[tuple[str, int, float, list[float]]] = []

    @classmethod
    def of(cls, owner: Layer, param: Any, classes: int, background: int) -> Saving | None:
        """Return the saving of a layer; None unless the directory and both files are given."""
        if not (param.output_directory and param.label_map_file and param.name_size_file):
            return None
        try:
            return cls(param, classes, background)
        except CaffeError as error:
            raise owner.error(f"save_output_param: {error}") from error

    def add(self, rows: torch.Tensor) -> None:
        """Add the detections (image, label, score, corners) of the next image."""
        size = self._sizes[self._image]
        resize = self._param.resize_param if self._param.HasField("resize_param") else None
        boxes = in_pixels(rows[:, 3:], size, resize)
        sides = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1).tolist()
        for (_, label, score), box in zip(rows[:, :3].tolist(), sides, strict=True):
            self._rows.append((size.name, int(label), score, [round(n, 2) for n in box]))
        self._image += 1
        if self._image == self._count:
            self._write()
            self._image = 0
            self._rows.clear()

    def _write(self) -> None:
        folder, prefix = Path(self._param.output_directory), self._param.output_name_prefix
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in self._files().items():
                (folder / f"{prefix}{name}").write_text(text)
        except OSError as error:
            raise CaffeError(f"detections cannot be written to {folder}: {error}") from error

    def _files(self) -> dict[str, str]:
        kind = self._param.output_format
        if kind == "COCO":
            found = [
                {"image_id": _number(n), "category_id": _number(self._names[label]), "bbox": box}
                | {"score": score}
                for n, label, score, box in self._rows
            ]
            return {".json": json.dumps(found)}
        if kind == "ILSVRC":
            lines = [
                f"{n} {label} {score:g} {_corners(box)}\n" for n, label, score, box in self._rows
            ]
            return {".txt": "".join(lines)}
        return {
            f"{self._names[label]}.txt": "".join(
                f"{n} {score:g} {_corners(box)}\n"
                for n, own, score, box in self._rows
                if own == label
            )
            for label in self._labels
        }


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _corners(box: list[float]) -> str:
    x, y, width, height = (int(number) for number in box)
    return f"{x} {y} {x + width} {y + height}"
