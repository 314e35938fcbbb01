"""The examples for Ray, each with a Ray of its own."""

from __future__ import annotations

import re

import pytest

from tests import needs
from tests.clusters.examples import LIMIT, printed

needs.package("ray")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(LIMIT + 30)]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("ray_executor.py", r"epoch 2: loss (0\.\d+) on 2 ranks"),
        ("ray_elastic.py", r"2 processes, loss (0\.\d+)"),
        ("ray_train.py", r"2 workers, loss (0\.\d+)"),
    ],
)
def test_an_example_trains_on_two_workers(script: str, line: str) -> None:
    (loss,) = re.findall(line, printed(f"clusters/{script}"))
    assert float(loss) < 0.5
