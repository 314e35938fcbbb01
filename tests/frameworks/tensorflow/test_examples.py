"""Whole jobs: the benchmark, and examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 250

pytestmark = pytest.mark.timeout(2 * LIMIT)


def test_the_benchmark_compares_with_the_strategy_of_tensorflow(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "tensorflow_step.py"
    arguments = ("--steps", "1", "--width", "64", "--output", str(tmp_path))
    shown = subprocess.check_output(
        [sys.executable, str(script), *arguments], text=True, timeout=LIMIT
    )
    assert "step on 2 ranks against one process alone at most 1.3" in shown
    timings = json.loads((tmp_path / "tensorflow_step.json").read_text())["timings"]
    contenders = ("one process", "Sirtaki", "MultiWorkerMirroredStrategy")
    for what in ("step", "100 tensors"):
        assert {f"{what}, {contender}" for contender in contenders} <= set(timings)
    assert all(taken["median"] > 0 for taken in timings.values())
