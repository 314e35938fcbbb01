"""Boxes of an image that is cropped and expanded: rows of (xmin, ymin, xmax, ymax)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

_MIN_OVERLAP = 1


@dataclass(frozen=True)
class Boxes:
    """The boxes of an image, as fractions of its width and height.

    Args:
        corners: Array of shape (boxes, 4).
        kinds: The label, instance and difficulty of each, of shape (boxes, 3).
    """

    corners: np.ndarray
    kinds: np.ndarray

    def kept(self, which: np.ndarray, corners: np.ndarray | None = None) -> Boxes:
        """Return some of the boxes, possibly with other corners."""
        given = self.corners if corners is None else corners
        return Boxes(given[which], self.kinds[which])

    def clipped(self) -> Boxes:
        """Return all boxes, clipped to the image."""
        return replace(self, corners=self.corners.clip(0, 1))

    def mirrored(self) -> Boxes:
        """Return the boxes of the mirrored image."""
        corners = self.corners.copy()
        corners[:, [0, 2]] = 1 - self.corners[:, [2, 0]]
        return replace(self, corners=corners)

    def seen_from(self, part: np.ndarray, constraint: Any = None) -> Boxes:
        """Return the boxes within a part of the image, as fractions of it.

        Args:
            part: The corners of the part; they may be outside of the image.
            constraint: An EmitConstraint, or None: all boxes that touch the part.
        """
        origin, sides = np.tile(part[:2], 2), np.tile(part[2:] - part[:2], 2)
        own = self.corners
        touching = ((own[:, :2] < part[2:]) & (own[:, 2:] > part[:2])).all(1)
        if constraint is not None:
            touching &= _emitted(own, part, constraint)
        corners = ((own - origin) / sides).clip(0, 1)
        return self.kept(touching & (areas(corners) > 0), corners)


def areas(corners: np.ndarray) -> np.ndarray:
    """Return the areas of boxes, 0 if an end precedes its start."""
    sides = corners[:, 2:] - corners[:, :2]
    return np.asarray(np.where((sides < 0).any(1), 0, sides.prod(1)))


def shared(corners: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return the area of the intersection of each box with a part."""
    sides = np.minimum(corners[:, 2:], part[2:]) - np.maximum(corners[:, :2], part[:2])
    return np.asarray(sides.clip(0).prod(1))


def coverage(common: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return a quotient, 0 without an intersection."""
    return np.asarray(np.divide(common, of, out=np.zeros_like(common), where=common > 0))


def _emitted(corners: np.ndarray, part: np.ndarray, constraint: Any) -> np.ndarray:
    if constraint.emit_type == _MIN_OVERLAP:
        found = coverage(shared(corners, part), areas(corners)) > constraint.emit_overlap
        return np.asarray(found)
    centres = (corners[:, :2] + corners[:, 2:]) / 2
    return np.asarray(((centres >= part[:2]) & (centres <= part[2:])).all(1))
