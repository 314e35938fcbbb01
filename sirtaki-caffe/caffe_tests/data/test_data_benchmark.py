"""The benchmark of reading data runs, and writes what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks" / "caffe_data.py"


@pytest.mark.slow
def test_reading_is_measured_for_raw_and_encoded_records(tmp_path: Path) -> None:
    few = ["--records", "4", "--batch", "2", "--batches", "2", "--rounds", "1"]
    command = [sys.executable, str(BENCHMARK), *few, "--output", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads((tmp_path / "caffe_data.json").read_text())
    assert len(result["cases"]) == 5
    assert all(case["images per second"] > 0 for case in result["cases"].values())
    assert "raw records: at least 500 images" in done.stdout
