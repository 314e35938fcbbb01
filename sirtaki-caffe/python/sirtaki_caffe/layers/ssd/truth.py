"""The boxes in a label blob (1, 1, boxes, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sirtaki_caffe.layers.base import Layer, Shape


@dataclass
class Truth:
    """The boxes of one image.

    Args:
        labels: Their classes.
        boxes: Array of shape (boxes, 4).
        difficult: The boxes that are hard to see.
    """

    labels: torch.Tensor
    boxes: torch.Tensor
    difficult: torch.Tensor


def check_label_shape(owner: Layer, shape: Shape, place: int) -> None:
    """Refuse a label blob of another shape."""
    if len(shape) != 4 or tuple(shape[:2]) != (1, 1) or shape[3] != 8:
        raise owner.error(
            f"its bottom {place} must be the boxes of the images, (1, 1, boxes, 8), not "
            f"{list(shape)}; AnnotatedData with records of type BBOX makes such a blob"
        )


def truths(
    owner: Layer, rows: torch.Tensor, images: int, classes: int, background: int, difficult: bool
) -> list[Truth]:
    """Return the boxes of each image.

    Args:
        owner: The layer of the bottom.
        rows: (boxes, 8): image, label, instance, corners, difficult; an image of -1 is none.
        images: The number of images.
        classes: The upper bound of labels.
        background: The label that no box may have.
        difficult: Whether to include difficult boxes.

    Raises:
        LayerError: An image or a label does not exist.
    """
    rows = rows.detach().cpu()
    rows = rows[rows[:, 0] != -1]
    _check_rows(owner, rows, images, classes, background)
    if not difficult:
        rows = rows[rows[:, 7] == 0]
    found = []
    for image in range(images):
        own = rows[rows[:, 0] == image]
        found.append(Truth(own[:, 1].long(), own[:, 3:7], own[:, 7] != 0))
    return found


def _check_rows(
    owner: Layer, rows: torch.Tensor, images: int, classes: int, background: int
) -> None:
    for image, label in rows[:, :2].tolist():
        if not 0 <= image < images:
            raise owner.error(f"a box is of image {image:g}, the batch has {images} images")
        if label == background:
            raise owner.error(
                f"a box of image {image:g} has the label {label:g} of the background: number the "
                "classes of the label map from 1, or set background_label_id"
            )
        if not 0 <= label < classes:
            raise owner.error(
                f"a box of image {image:g} has the label {label:g}, but num_classes is {classes}: "
                "labels are 0 to num_classes - 1, the background's among them"
            )


def check_predictions(
    owner: Layer, bottoms: Sequence[Shape], classes: int, share_location: bool
) -> tuple[int, int]:
    """Check locations, scores and priors against each other; return images and priors."""
    loc, conf, priors = bottoms[:3]
    if classes < 1:
        raise owner.error("num_classes must be given; the background is one of them")
    if len(priors) != 3 or tuple(priors[:2]) != (1, 2) or priors[2] % 4:
        raise owner.error(f"its bottom 2 must be priors (1, 2, 4 * priors), not {list(priors)}")
    count = priors[2] // 4
    each = 4 * (1 if share_location else classes)
    for place, shape, size, of in (
        (0, loc, each, "locations"),
        (1, conf, classes, f"scores for {classes} classes"),
    ):
        numbers = 1
        for side in shape[1:]:
            numbers *= side
        if not shape or numbers != count * size:
            raise owner.error(
                f"its bottom {place} must have {count} * {size} {of} an image for {count} priors, "
                f"not the shape {list(shape)}; num_classes, the layers of priors and num_output "
                "of the convolutions must agree"
            )
    if loc[0] != conf[0]:
        raise owner.error(f"its bottoms 0 and 1 are of {loc[0]} and {conf[0]} images")
    return loc[0], count
