"""Boxes: (xmin, ymin, xmax, ymax), as fractions of the image's width and height."""

from __future__ import annotations

import torch

CORNER, CENTER_SIZE, CORNER_SIZE = 1, 2, 3


def sizes(boxes: torch.Tensor, pixels: bool = False) -> torch.Tensor:
    """Return the areas of boxes, 0 if an end precedes its start.

    Args:
        boxes: Array of shape (…, 4).
        pixels: Whether the last pixel is part of a box.
    """
    sides = boxes[..., 2:] - boxes[..., :2]
    area = (sides + 1).prod(-1) if pixels else sides.prod(-1)
    return area.where((sides >= 0).all(-1), torch.zeros_like(area))


def overlaps(a: torch.Tensor, b: torch.Tensor, pixels: bool = False) -> torch.Tensor:
    """Return the intersection over union of each of `a` and each of `b`; shape (len(a), len(b)).

    In pixels, boxes that do not touch have an intersection of one pixel, as in Caffe.
    """
    ends = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = ends - torch.maximum(a[:, None, :2], b[None, :, :2])
    if pixels:
        apart = (sides < 0).any(-1, keepdim=True)
        sides = torch.zeros_like(sides).where(apart, sides) + 1
    shared = sides.clamp(min=0).prod(-1)
    union = sizes(a, pixels)[:, None] + sizes(b, pixels)[None, :] - shared
    return (shared / union).where((shared > 0) & (union > 0), torch.zeros_like(shared))


def _centres(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the centres and the sides of boxes."""
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def encode(code: int, priors: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Return the predictions that turn priors into boxes, not yet divided by variances."""
    if code == CORNER:
        return boxes - priors
    centres, sides = _centres(priors)
    if code == CORNER_SIZE:
        return (boxes - priors) / torch.cat([sides, sides], -1)
    own_centres, own_sides = _centres(boxes)
    return torch.cat([(own_centres - centres) / sides, (own_sides / sides).log()], -1)


def decode(code: int, priors: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """Return the boxes from a net's predictions times the variances."""
    if code == CORNER:
        return priors + said
    centres, sides = _centres(priors)
    if code == CORNER_SIZE:
        return priors + said * torch.cat([sides, sides], -1)
    centre = centres + said[..., :2] * sides
    half = sides * said[..., 2:].exp() / 2
    return torch.cat([centre - half, centre + half], -1)


def kept_by_nms(
    boxes: torch.Tensor, scores: torch.Tensor, threshold: float, top_k: int = -1, eta: float = 1.0
) -> torch.Tensor:
    """Return the boxes left, best first, if none overlaps a better one by more than a threshold.

    Args:
        boxes: The candidates.
        scores: The score of each; the order of equal ones is kept.
        threshold: The threshold of the intersection over union.
        top_k: The number of best boxes to consider; -1: all.
        eta: The factor of the threshold after each kept box, while it is above 0.5.
    """
    order = scores.argsort(descending=True, stable=True)
    order = order[:top_k] if top_k > -1 else order
    sorted_boxes = boxes[order]
    most = torch.zeros(len(order), dtype=boxes.dtype)
    free = torch.ones(len(order), dtype=torch.bool)
    kept: list[int] = []
    while True:
        left = (free & (most <= threshold)).nonzero()
        if not len(left):
            return order[torch.tensor(kept, dtype=torch.long)]
        at = int(left[0])
        kept.append(at)
        free[: at + 1] = False
        overlap = overlaps(sorted_boxes[at : at + 1], sorted_boxes[at + 1 :])[0]
        most[at + 1 :] = torch.maximum(most[at + 1 :], overlap)
        if eta < 1 and threshold > 0.5:
            threshold *= eta
