"""The benchmark of Caffe's nets runs, and writes what it has measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "caffe_step.py"


@pytest.mark.slow
def test_steps_forwards_and_building_are_measured(tmp_path: Path) -> None:
    small = ("--small", "--rounds=1", "--nets=2", "--output", str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *small], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "caffe_step.json").read_text())
    assert list(result["cases"]) == [
        "LeNet, step, batch 64, 1 thread",
        "LeNet, step, batch 64, 2 threads",
        "LeNet, forward, batch 8",
        "2 nets of a zoo, parsed and built",
    ]
    assert len(result["targets"]) == 4
    assert all(line in done.stdout for line in ("PyTorch by hand", "OpenCV"))
