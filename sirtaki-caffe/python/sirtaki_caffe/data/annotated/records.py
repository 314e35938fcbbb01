"""The contents of an AnnotatedDatum: its image and its boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.boxes import Boxes
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import message_class

AnnotatedDatum = message_class("AnnotatedDatum")


def parse_annotated(record: bytes) -> Any:
    """Return the AnnotatedDatum of a record.

    Raises:
        CaffeError: It is none; the message mentions a plain Datum.
    """
    found = AnnotatedDatum()
    try:
        found.ParseFromString(record)
    except Exception as error:
        raise CaffeError(f"is no AnnotatedDatum ({_cure(record)}): {error}") from error
    if not found.HasField("datum"):
        raise CaffeError(f"is no AnnotatedDatum: {_cure(record)}")
    return found


def _cure(record: bytes) -> str:
    plain = message_class("Datum")()
    try:
        plain.ParseFromString(record)
    except Exception:
        return "make the database with convert_annoset"
    if plain.HasField("height") or plain.HasField("data"):
        return "it holds a plain Datum; use the layer Data, or make it with convert_annoset"
    return "make the database with convert_annoset"


def boxes_of(found: Any, labels: dict[int, str] | None) -> Boxes:
    """Return the boxes of a record, by group.

    Args:
        found: An AnnotatedDatum.
        labels: The names of valid labels; None: any.

    Raises:
        CaffeError: A box has no area in the image, or a label is not in the map.
    """
    corners, kinds = [], []
    for group in found.annotation_group:
        if labels is not None and group.group_label not in labels:
            raise CaffeError(
                f"has a box of label {group.group_label}, which the label map does not have: "
                "mend the annotation or the map"
            )
        for annotation in group.annotation:
            box = annotation.bbox
            corners.append((box.xmin, box.ymin, box.xmax, box.ymax))
            kinds.append((group.group_label, annotation.instance_id, float(box.difficult)))
    made = Boxes(
        np.array(corners, np.float64).reshape(-1, 4), np.array(kinds, np.float64).reshape(-1, 3)
    )
    _check(made)
    return made


def _check(boxes: Boxes) -> None:
    clipped = boxes.corners.clip(0, 1)
    for box, seen in zip(boxes.corners.tolist(), clipped.tolist(), strict=True):
        shown = " ".join(f"{number:g}" for number in box)
        if not np.isfinite(box).all():
            raise CaffeError(f"has a box ({shown}) that is no number: mend the annotation")
        if box[2] <= box[0] or box[3] <= box[1]:
            raise CaffeError(f"has a box ({shown}) without area: mend the annotation")
        if seen[2] <= seen[0] or seen[3] <= seen[1]:
            raise CaffeError(
                f"has a box ({shown}) outside of the image: corners are parts of its width and "
                "height; mend the annotation"
            )
