"""The Python layers of Faster R-CNN and R-FCN, from the description of Ren 2015.

Their authors' own are not part of Caffe. Boxes are in pixels, the last ones included.
"""

from __future__ import annotations

import numpy as np

import caffe

STRIDE = 16
RATIOS, SCALES = (0.5, 1.0, 2.0), (8, 16, 32)
CLASSES = 21


def anchors(height: int, width: int) -> np.ndarray:
    """Of each place, row by row: three ratios at three scales."""
    sides = [(STRIDE * s / r**0.5, STRIDE * s * r**0.5) for r in RATIOS for s in SCALES]
    half = np.array([(-w, -h, w, h) for w, h in sides]) / 2
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    centre = (np.stack([x, y, x, y], -1) + 0.5) * STRIDE
    return (centre[:, :, None] + half).reshape(-1, 4)


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    low, high = np.maximum(a[:, None, :2], b[:, :2]), np.minimum(a[:, None, 2:], b[:, 2:])
    common = np.clip(high - low + 1, 0, None).prod(2)
    areas = [(x[:, 2:] - x[:, :2] + 1).prod(1) for x in (a, b)]
    return common / (areas[0][:, None] + areas[1] - common)


def encode(boxes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    size, own = boxes[:, 2:] - boxes[:, :2] + 1, wanted[:, 2:] - wanted[:, :2] + 1
    shift = (wanted[:, :2] + own / 2 - boxes[:, :2] - size / 2) / size
    return np.hstack([shift, np.log(own / size)])


def decode(boxes: np.ndarray, code: np.ndarray) -> np.ndarray:
    size = boxes[:, 2:] - boxes[:, :2] + 1
    centre = boxes[:, :2] + size / 2 + code[:, :2] * size
    own = size * np.exp(np.clip(code[:, 2:], -4, 4))
    return np.hstack([centre - own / 2, centre + own / 2 - 1])


class Resized(caffe.Layer):
    """Tops get their shapes from what `run` returns."""

    def setup(self, bottom, top):
        for each in top:
            each.reshape(1, 5)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        found = self.run(*(each.data.copy() for each in bottom))
        for each, values in zip(top, found, strict=True):
            each.reshape(*values.shape)
            each.data[...] = values

    def backward(self, top, propagate_down, bottom):
        pass


class AnchorTarget(Resized):
    """(scores, boxes, image's size) -> labels, codes, inside weights, outside weights."""

    def setup(self, bottom, top):
        _, channels, height, width = bottom[0].shape
        places = (1, channels // 2 * height, width)
        top[0].reshape(1, *places)
        for each in top[1:]:
            each.reshape(1, channels * 2, height, width)

    def run(self, scores, boxes, info):
        height, width = scores.shape[2:]
        every = anchors(height, width)
        pairs = overlaps(every, boxes[:, :4])
        labels = np.where(pairs.max(1) >= 0.7, 1, np.where(pairs.max(1) < 0.3, 0, -1))
        labels[pairs.argmax(0)] = 1
        codes = encode(every, boxes[pairs.argmax(1), :4])
        count = len(every) // (height * width)
        inside = np.repeat((labels == 1)[:, None], 4, 1).astype(float)
        outside = np.repeat((labels >= 0)[:, None], 4, 1) / (labels >= 0).sum()

        def planes(rows):
            return rows.reshape(1, height, width, -1).transpose(0, 3, 1, 2)

        return [
            planes(labels).reshape(1, 1, count * height, width),
            *(planes(each) for each in (codes, inside, outside)),
        ]


class Proposal(Resized):
    """(probabilities, codes, image's size) -> the regions that look most like objects."""

    def setup(self, bottom, top):
        top[0].reshape(1, 5)

    def run(self, scores, codes, info):
        _, channels, height, width = scores.shape
        front = scores[0, channels // 2 :].transpose(1, 2, 0).ravel()
        rows = codes[0].transpose(1, 2, 0).reshape(-1, 4)
        boxes = decode(anchors(height, width), rows)
        limit = info[0, [1, 0, 1, 0]] - 1
        boxes = np.clip(boxes, 0, limit)
        best = np.argsort(-front, kind="stable")[:12]
        return [np.hstack([np.zeros((len(best), 1)), boxes[best]])]


class ProposalTarget(Resized):
    """(regions, boxes) -> regions, labels, codes, inside weights, outside weights."""

    def setup(self, bottom, top):
        self.kinds = int(self.param_str or CLASSES)
        for each, columns in zip(top, (5, 1, *[4 * self.kinds] * 3), strict=True):
            each.reshape(1, columns)

    def run(self, regions, boxes):
        own = np.hstack([np.zeros((len(boxes), 1)), boxes[:, :4]])
        regions = np.vstack([own, regions])
        pairs = overlaps(regions[:, 1:], boxes[:, :4])
        nearest = pairs.argmax(1)
        labels = np.where(pairs.max(1) >= 0.5, boxes[nearest, 4], 0)
        codes = np.zeros((len(regions), 4 * self.kinds))
        inside = np.zeros_like(codes)
        for row in np.flatnonzero(labels):
            kind = int(labels[row]) if self.kinds > 2 else 1
            columns = slice(4 * kind, 4 * kind + 4)
            codes[row, columns] = encode(regions[[row], 1:], boxes[[nearest[row]], :4])
            inside[row, columns] = 1
        return [regions, labels[:, None], codes, inside, (inside > 0).astype(float)]
