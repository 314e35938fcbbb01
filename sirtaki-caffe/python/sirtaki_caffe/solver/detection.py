"""The mean average precision of detections, over the batches of all processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net

VERSIONS = ("11point", "MaxIntegral", "Integral")

# A detection: label, score, right, wrong, and its origin: batch, image in it, process.
_Row = tuple[float, ...]


class Detections:
    """The rows of one output of a net, from DetectionEvaluate.

    Attributes:
        positives: The number of boxes of each label.
        rows: The counted detections.
    """

    def __init__(self) -> None:
        self.positives: dict[int, int] = {}
        self.rows: list[_Row] = []

    def add(self, rows: np.ndarray, batch: int, rank: int) -> None:
        """Add the rows of a batch: (image, label, score, right, wrong), or counts of boxes."""
        for image, label, score, right, wrong in rows.reshape(-1, 5).tolist():
            if image == -1:
                self.positives[int(label)] = self.positives.get(int(label), 0) + int(score)
            elif right or wrong:
                self.rows.append((label, score, right, wrong, batch, image, rank))

    def join(self, others: Sequence[Detections]) -> None:
        """Merge all processes' detections, in the order of one process with all images."""
        labels = sorted({label for other in others for label in other.positives})
        self.positives = {
            label: sum(other.positives.get(label, 0) for other in others) for label in labels
        }
        self.rows = sorted((row for other in others for row in other.rows), key=lambda r: r[4:])

    def precisions(self, version: str, missing: Callable[[int], None]) -> dict[int, float]:
        """Return the average precision of each class.

        Args:
            version: The way of averaging, one of VERSIONS.
            missing: Called for classes without detections.
        """
        found = {}
        for label, count in sorted(self.positives.items()):
            own = [
                (score, right, wrong) for at, score, right, wrong, *_ in self.rows if at == label
            ]
            if not own:
                missing(label)
            found[label] = average_precision(own, count, version)
        return found


def average_precision(
    rows: Sequence[tuple[float, float, float]], positives: int, version: str
) -> float:
    """Return the average precision of one class.

    Args:
        rows: Score, right and wrong of each detection.
        positives: The number of boxes.
        version: One of VERSIONS.
    """
    if not rows or not positives:
        return 0.0
    values = np.array(rows, np.float64)
    values = values[np.argsort(-values[:, 0], kind="stable")]
    right, wrong = values[:, 1].cumsum(), values[:, 2].cumsum()
    precision = (right / (right + wrong)).astype(np.float32)
    recall = (right / positives).astype(np.float32)
    best = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall or above
    if version == "11point":
        points = [best[recall.astype(np.float64) >= at / 10] for at in range(11)]
        return float(sum(float(each[0]) for each in points if len(each)) / 11)
    gained = np.diff(recall, prepend=np.float32(0))
    return float((gained * (best if version == "MaxIntegral" else precision)).sum())


def precision_lines(
    found: dict[str, Detections],
    version: str,
    missing: Callable[[int], None],
    *,
    of_each_class: bool = False,
) -> list[str]:
    """Return the log lines of some outputs.

    Args:
        found: The detections of each output.
        version: The way of averaging.
        missing: Called for classes without detections.
        of_each_class: Whether to add a line for each class.
    """
    lines = []
    for number, (name, each) in enumerate(found.items()):
        precisions = each.precisions(version, missing)
        if of_each_class:
            lines += [f"class{label}: {value:g}" for label, value in precisions.items()]
        mean = sum(precisions.values()) / len(precisions) if precisions else 0.0
        lines.append(f"    Test net output #{number}: {name} = {mean:g}")
    return lines


def check_outputs(net: Net) -> None:
    """Refuse a net whose outputs are not detections.

    Raises:
        CaffeError: An output is not.
    """
    for name in net.outputs:
        shape = net.blobs[name].shape
        if len(shape) != 4 or shape[-1] != 5:
            raise CaffeError(
                f"detections are evaluated, but the output '{name}' of the test net is "
                f"{list(shape)}: each must come from a DetectionEvaluate; end the others in a "
                "Silence layer"
            )
