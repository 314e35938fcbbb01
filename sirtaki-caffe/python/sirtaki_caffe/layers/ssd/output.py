"""DetectionOutput: converts a detector's predictions to boxes with classes and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.ssd.boxes import decode, kept_by_nms
from sirtaki_caffe.layers.ssd.saving import Saving
from sirtaki_caffe.layers.ssd.truth import check_predictions


@layer("DetectionOutput")
class DetectionOutput(Layer):
    """Bottoms: locations, probabilities, priors; rows (image, label, score, corners).

    For each class the best of overlapping boxes remain, and for each image keep_top_k. Rows are
    ordered by image, label, score. A batch without any has a row of -1 for each image.
    """

    bottoms = (3, 4)
    no_gradient_to = (0, 1, 2, 3)
    references = (0, 1, 2, 3)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        p = self._param = self.proto.detection_output_param
        if p.visualize:
            raise self.error("visualize is not supported; write its rows, or draw them in a script")
        nms = p.nms_param
        if nms.nms_threshold < 0 or not 0 < nms.eta <= 1:
            raise self.error("nms_param needs nms_threshold >= 0 and 0 < eta <= 1")
        self._top_k = nms.top_k if nms.HasField("top_k") else -1
        self._least = p.confidence_threshold if p.HasField("confidence_threshold") else -math.inf
        self.shapes(bottoms)
        self._saving = Saving.of(self, p.save_output_param, p.num_classes, p.background_label_id)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return one row, before the number is known."""
        p = self._param
        check_predictions(self, bottoms, p.num_classes, p.share_location)
        return [(1, 1, 1, 7)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        p = self._param
        images, count = check_predictions(
            self, [tuple(b.shape) for b in bottoms], p.num_classes, p.share_location
        )
        loc = bottoms[0].detach().cpu().reshape(images, count, -1, 4)
        conf = bottoms[1].detach().cpu().reshape(images, count, -1)
        priors, variances = bottoms[2].detach().cpu().reshape(2, count, 4)
        if not p.variance_encoded_in_target:
            loc = loc * variances[:, None]
        rows = [
            self._of_image(image, decode(p.code_type, priors[:, None], loc[image]), conf[image])
            for image in range(images)
        ]
        if self._saving:
            for found in rows:
                self._saving.add(found)
        if not sum(len(found) for found in rows):
            self.context.log("detection_output_layer.cpp", "Couldn't find any detections")
            none = torch.full((images, 7), -1.0, dtype=loc.dtype)
            none[:, 0] = torch.arange(images)
            rows = [none]
        return [torch.cat(rows)[None, None].to(bottoms[0].device)]

    def _of_image(self, image: int, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return its rows; boxes are (priors, 1 or classes, 4)."""
        p = self._param
        parts = [torch.zeros(0, 7, dtype=boxes.dtype)]
        for label in range(p.num_classes):
            if label == p.background_label_id:
                continue
            places = (scores[:, label] > self._least).nonzero()[:, 0]
            own = boxes[places, 0 if p.share_location else label]
            best = kept_by_nms(
                own, scores[places, label], p.nms_param.nms_threshold, self._top_k, p.nms_param.eta
            )
            if not len(best):
                continue
            head = torch.tensor([image, label], dtype=boxes.dtype).expand(len(best), 2)
            parts.append(torch.cat([head, scores[places[best], label, None], own[best]], 1))
        rows = torch.cat(parts)
        if -1 < p.keep_top_k < len(rows):
            kept = rows[:, 2].argsort(descending=True, stable=True)[: p.keep_top_k]
            rows = rows[kept.sort()[0]]
        return rows
