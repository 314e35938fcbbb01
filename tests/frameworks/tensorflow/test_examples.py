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
LIMIT = 300

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "--model mlp --fp16-allreduce --use-adasum",
        pytest.param("", marks=pytest.mark.nightly),
        pytest.param("--eager", marks=pytest.mark.nightly),
    ],
)
def test_the_synthetic_benchmark_says_how_fast(job: Job, more: str) -> None:
    short = "--batch-size 2 --num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2"
    output = run(job, "tensorflow2_synthetic_benchmark.py", *short.split(), *more.split())
    assert re.search(r"^\[0\]<stdout>:Img/sec per CPU: \d+\.\d \+-\d+\.\d", output, re.MULTILINE)
    assert re.search(r"Total img/sec on 2 CPU\(s\): \d+\.\d \+-", output)


@pytest.mark.nightly
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    ["keras_elastic.py", pytest.param("tensorflow2_elastic.py", marks=pytest.mark.nightly)],
)
def test_the_elastic_examples_continue_from_their_checkpoints(
    job: Job, tmp_path: Path, script: str
) -> None:
    arguments = (script, "--checkpoints", str(tmp_path / "points"), "--epochs")
    assert "epoch 1/1" in run(job, *arguments, "1")
    again = run(job, *arguments, "2")
    assert "continues from step 50" in again
    assert "epoch 2/2" in again


OPPOSITE = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
import horovod.tensorflow as hvd
hvd.init()
numbers = list(range(10)) if hvd.rank() == 0 else list(reversed(range(10)))

@tf.function
def run(x):
    return {str(i): hvd.allreduce(x * float(i), op=hvd.Sum, name=f"op.{i}") for i in numbers}

for elements in (4, 1 << 18):
    results = run(tf.ones(elements))
    print("sums", [int(results[str(i)][-1]) for i in range(10)], flush=True)
hvd.shutdown()
"""


@pytest.mark.slow
def test_opposite_orders_finish_on_one_thread_of_tensorflows(job: Job, tmp_path: Path) -> None:
    """Small operations, which the thread itself moves for a while, and large ones."""
    script = tmp_path / "opposite.py"
    script.write_text(OPPOSITE)
    output = run(job, str(script))
    assert output.count(f"sums {[2 * i for i in range(10)]}") == 4
