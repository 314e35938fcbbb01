"""The mean average precision of detections."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_tests.ssd.test_detections import ROWS
from sirtaki_caffe.solver.detection import Detections, average_precision, precision_lines

SCORED = [
    *((0.9, 1, 0), (0.85, 0, 1), (0.8, 1, 0), (0.7, 1, 0)),
    *((0.6, 0, 1), (0.5, 0, 1), (0.4, 1, 0), (0.3, 0, 1)),
]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("11point", 0.649351), ("MaxIntegral", 0.614286), ("Integral", 0.597619)],
)
def test_precision_is_averaged_over_recalls(version: str, expected: float) -> None:
    assert average_precision(SCORED, 5, version) == pytest.approx(expected, abs=1e-6)


def test_a_class_without_detections_or_boxes_has_none() -> None:
    assert average_precision([], 5, "11point") == 0
    assert average_precision(SCORED, 0, "11point") == 0


@pytest.mark.parametrize(
    ("version", "shown"),
    [("11point", "0.282828"), ("MaxIntegral", "0.277778"), ("Integral", "0.277778")],
)
def test_the_mean_is_over_all_classes(version: str, shown: str) -> None:
    found = Detections()
    found.add(np.array(ROWS), 0, 0)
    missing: list[int] = []
    lines = precision_lines({"detection_eval": found}, version, missing.append)
    assert lines == [f"    Test net output #0: detection_eval = {shown}"]
    assert missing == []


def test_classes_without_detections_are_told_and_each_class_can_be_shown() -> None:
    found = Detections()
    found.add(np.array([(-1, 1, 1, -1, -1), (-1, 7, 2, -1, -1), (0, 1, 0.5, 1, 0)]), 0, 0)
    missing: list[int] = []
    lines = precision_lines({"map": found}, "Integral", missing.append, of_each_class=True)
    assert lines == ["class1: 1", "class7: 0", "    Test net output #0: map = 0.5"]
    assert missing == [7]


def test_processes_together_have_the_order_of_one() -> None:
    """Two detections of equal score: which is first decides the precision."""
    rows = [np.array([(-1, 1, 1, -1, -1), (0, 1, 0.5, 0, 1)]), np.array([(0, 1, 0.5, 1, 0)])]
    whole = Detections()
    whole.add(rows[0], 0, 0)
    whole.add(np.array([(1, 1, 0.5, 1, 0)]), 0, 0)
    parts = [Detections(), Detections()]
    for rank, (part, own) in enumerate(zip(parts, rows, strict=True)):
        part.add(own, 0, rank)
    for order in (parts, parts[::-1]):
        together = Detections()
        together.join(order)
        assert together.precisions("Integral", lambda label: None) == whole.precisions(
            "Integral", lambda label: None
        )
