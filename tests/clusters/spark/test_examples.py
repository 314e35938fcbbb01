"""The examples for Spark, each with a Spark of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import needs
from tests.clusters.examples import LIMIT, printed

needs.package("pyspark")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(LIMIT + 30)]


def accuracy(told: str) -> float:
    (found,) = re.findall(r"accuracy ([\d.]+)", told)
    return float(found)


def test_the_estimator_predicts_what_it_has_not_seen(tmp_path: Path) -> None:
    told = printed("spark_torch_estimator.py", "--work-dir", str(tmp_path), "--epochs", "4")
    assert accuracy(told) >= 0.9


def test_ranks_that_run_starts_train_on_rows_of_a_data_frame(tmp_path: Path) -> None:
    told = printed("clusters/spark_run.py", "--work-dir", str(tmp_path))
    assert "ranks [0, 1]" in told
    assert accuracy(told) >= 0.9
