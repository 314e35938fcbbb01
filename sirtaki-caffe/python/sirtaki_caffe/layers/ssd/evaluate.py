"""DetectionEvaluate: classifies detections as right or wrong."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.data.annotated.label_map import ImageSize, read_sizes
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.ssd.boxes import overlaps
from sirtaki_caffe.layers.ssd.saving import in_pixels
from sirtaki_caffe.layers.ssd.truth import Truth, check_label_shape, truths


@layer("DetectionEvaluate")
class DetectionEvaluate(Layer):
    """Bottoms: detections, boxes of the images; rows of five numbers.

    First for each class (-1, class, boxes, -1, -1); then for each detection (image, label, score,
    right, wrong), both 0 if it belongs to a difficult box that is not evaluated.
    """

    bottoms = (2, 2)
    no_gradient_to = (0, 1)
    references = (0, 1)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters; read the images' sizes."""
        p = self._param = self.proto.detection_evaluate_param
        if not p.num_classes:
            raise self.error("detection_evaluate_param.num_classes must be given")
        if p.overlap_threshold <= 0:
            raise self.error("detection_evaluate_param.overlap_threshold must be positive")
        self._labels = [c for c in range(p.num_classes) if c != p.background_label_id]
        self._sizes: list[ImageSize] = []
        self._seen = 0  # images of the earlier batches
        self._batch = 0  # the largest number of images in a batch so far
        if p.name_size_file:
            try:
                self._sizes = read_sizes(p.name_size_file)
            except CaffeError as error:
                raise self.error(f"name_size_file: {error}") from error
            if not self._sizes:
                raise self.error(f"name_size_file {p.name_size_file} has no line")
        self.shapes(bottoms)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return a row per class, and one per detection."""
        if len(bottoms[0]) != 4 or tuple(bottoms[0][:2]) != (1, 1) or bottoms[0][3] != 7:
            raise self.error(
                f"its bottom 0 must be detections (1, 1, boxes, 7), not {list(bottoms[0])}"
            )
        check_label_shape(self, bottoms[1], 1)
        return [(1, 1, len(self._labels) + bottoms[0][2], 5)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        p = self._param
        rows = bottoms[0].detach().cpu().reshape(-1, 7)
        rows = rows[rows[:, 1] != -1]
        labels = bottoms[1].detach().cpu().reshape(-1, 8)
        images = 1 + int(max([*rows[:, 0].tolist(), *labels[:, 0].tolist(), 0.0]))
        found = truths(self, labels, images, p.num_classes, p.background_label_id, True)
        counts = dict.fromkeys(self._labels, 0)
        for truth in found:
            for label, difficult in zip(truth.labels.tolist(), truth.difficult, strict=True):
                counts[label] += bool(p.evaluate_difficult_gt) or not difficult
        parts = [rows.new_tensor([[-1, label, counts[label], -1, -1] for label in self._labels])]
        parts += [self._of_image(i, rows[rows[:, 0] == i], found[i]) for i in range(images)]
        self._batch = max(self._batch, images)
        self._seen += self._batch
        return [torch.cat([part.reshape(-1, 5) for part in parts])[None, None]]

    def _size(self, image: int) -> ImageSize:
        """Return the size of an image in the batch; its line is its record's, divided by process.

        Caffe advances by a line for each image with a detection.
        """
        world = self.context.world
        return self._sizes[((self._seen + image) * world.size + world.rank) % len(self._sizes)]

    def _of_image(self, image: int, rows: torch.Tensor, truth: Truth) -> torch.Tensor:
        boxes, own = rows[:, 3:], truth.boxes
        pixels = bool(self._sizes)
        if pixels and len(rows):
            size = self._size(image)
            resize = self._param.resize_param if self._param.HasField("resize_param") else None
            boxes, own = (in_pixels(each, size, resize) for each in (boxes, own))
        marks = torch.zeros(len(rows), 2, dtype=rows.dtype)
        order = []
        for label in self._labels:
            places = (rows[:, 1] == label).nonzero()[:, 0]
            places = places[rows[places, 2].argsort(descending=True, stable=True)]
            order.append(places)
            candidates = (truth.labels == label).nonzero()[:, 0]
            pairs = overlaps(boxes[places], own[candidates], pixels)
            marks[places] = self._marks(pairs, truth.difficult[candidates]).to(rows.dtype)
        taken = torch.cat(order)
        return torch.cat([rows[taken, :3], marks[taken]], 1)

    def _marks(self, pairs: torch.Tensor, difficult: torch.Tensor) -> torch.Tensor:
        """Right and wrong, of the detections of one class with these overlaps, best first."""
        marks = torch.zeros(len(pairs), 2)
        used: set[int] = set()
        for place, row in enumerate(pairs.tolist()):
            nearest = max(range(len(row)), key=row.__getitem__, default=-1)
            if nearest < 0 or row[nearest] < self._param.overlap_threshold:
                marks[place, 1] = 1
            elif not difficult[nearest] or self._param.evaluate_difficult_gt:
                marks[place, int(nearest in used)] = 1
                used.add(nearest)
        return marks
