"""The benchmarks of Caffe's nets and of reading data run, and write what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.mark.slow
def test_steps_forwards_and_building_are_measured(tmp_path: Path) -> None:
    small = ("--small", "--rounds=1", "--nets=2", "--output", str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "caffe_step.py"), *small],
        capture_output=True,
        text=True,
        timeout=100,
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


@pytest.mark.slow
def test_reading_is_measured_for_raw_and_encoded_records(tmp_path: Path) -> None:
    few = ["--records", "4", "--batch", "2", "--batches", "2", "--rounds", "1"]
    command = [sys.executable, str(BENCHMARKS / "caffe_data.py"), *few, "--output", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads((tmp_path / "caffe_data.json").read_text())
    assert len(result["cases"]) == 5
    assert all(case["images per second"] > 0 for case in result["cases"].values())
    assert "raw records: at least 500 images" in done.stdout
