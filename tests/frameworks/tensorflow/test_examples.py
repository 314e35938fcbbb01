"""Whole jobs: the benchmark, and examples."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.single.launching import HOROVODRUN, Job

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 250

pytestmark = pytest.mark.timeout(2 * LIMIT)


def run(job: Job, script: str, *arguments: str) -> str:
    """Run an example on two ranks; return its output once it has ended well."""
    done = subprocess.run(
        [*HOROVODRUN, "-np", "2", sys.executable, str(ROOT / "examples" / script), *arguments],
        env=job.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("more", ["", "--model mlp --fp16-allreduce --use-adasum", "--eager"])
def test_the_synthetic_benchmark_says_how_fast(job: Job, more: str) -> None:
    short = "--batch-size 2 --num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2"
    output = run(job, "tensorflow2_synthetic_benchmark.py", *short.split(), *more.split())
    assert re.search(r"^\[0\]<stdout>:Img/sec per CPU: \d+\.\d \+-\d+\.\d", output, re.MULTILINE)
    assert re.search(r"Total img/sec on 2 CPU\(s\): \d+\.\d \+-", output)


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
