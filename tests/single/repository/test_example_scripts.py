"""The examples run on two processes, and say what they promise."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.single.launching import Job

pytestmark = pytest.mark.job

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("pytorch_*.py"))

BENCHMARK = "--batch-size 2 --num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2"
# Script, arguments, a line that the first process prints.
RUNS = [
    (
        "pytorch_synthetic_benchmark.py",
        f"{BENCHMARK} --model mlp --fp16-allreduce --use-adasum",
        r"Img/sec per [CG]PU: \d+\.\d \+-\d+\.\d",
    ),
    (
        "pytorch_sparse_embedding.py",
        "--steps 100",
        r"Accuracy: [89]\d\.\d%; rows .*: 4\d\d of 20000",
    ),
    ("pytorch_cifar10.py", "", r"   2 +\d+\.\d\d +1\.00 +(100|[3-9]\d)\.\d\d%"),
    ("pytorch_mnist.py", "--epochs 2", r"Test accuracy: [3-9]\d\.\d+%"),
]
# What the tests of their pages and of elastic jobs also do.
RUNS_OF_NIGHTLY = [
    ("pytorch_synthetic_benchmark.py", BENCHMARK, r"Total img/sec on 2 [CG]PU\(s\): \d+\.\d \+-"),
    (
        "pytorch_sparse_embedding.py",
        "--steps 100 --words 2000 --sparse-as-dense",
        r"Accuracy: [89]\d\.\d%; rows .*: 2000 of 2000",
    ),
    (
        "pytorch_uneven_join.py",
        "--epochs 2",
        r"Largest error: 0\.0\d+; the same on all processes: True",
    ),
    ("pytorch_process_sets.py", "--steps 200", r"parabola: loss 0\.0\d+ on processes \[0, 1\]"),
    ("pytorch_adasum.py", "--steps 20", r"Adasum of 2 steps at right angles: \[1\.0, 1\.0\]"),
    ("pytorch_diloco.py", "--epochs 4", r"Test accuracy: [5-9]\d\.\d+%"),
    ("pytorch_diloco.py", "--epochs 2 --between-hosts", r"Test accuracy: [3-9]\d\.\d+%"),
    ("pytorch_elastic.py", "--epochs 3", r"Accuracy: [6-9]\d\.\d%"),
]


def run(job: Job, processes: int, script: str, *arguments: str) -> str:
    """Run an example under horovodrun; return its output once it has ended well."""
    command = (sys.executable, str(EXAMPLES / script), *arguments)
    done = job.run("-np", str(processes), *command, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Started as the scripts of the first pages, of which `make test` runs PyTorch's.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "line"),
    [
        *(pytest.param(*run, id=" ".join(run[:2])) for run in RUNS),
        *(
            pytest.param(*run, id=" ".join(run[:2]), marks=pytest.mark.nightly)
            for run in RUNS_OF_NIGHTLY
        ),
    ],
)
def test_an_example_trains_on_two_processes(script: str, arguments: str, line: str) -> None:
    if script == "pytorch_mnist.py":
        needs.package("sklearn")
    output = run(Job(), 2, script, *arguments.split())
    assert re.search(rf"^\[0\]<stdout>:{line}", output, re.MULTILINE), output


@pytest.mark.slow
def test_overlapping_process_sets_train_apart_on_three_processes() -> None:
    output = run(Job(), 3, "pytorch_process_sets.py", "--steps", "100")
    assert re.search(r"^\[0\]<stdout>:line: .* on processes \[0, 1\]$", output, re.MULTILINE)
    assert re.search(r"^\[1\]<stdout>:parabola: .* on processes \[1, 2\]$", output, re.MULTILINE)


@pytest.mark.slow
def test_the_image_example_makes_data_and_continues_from_its_checkpoint(tmp_path: Path) -> None:
    script, data = "pytorch_imagenet.py", ("--data-dir", str(tmp_path / "images"))
    make = (*data, "--generate", "--classes", "2", "--images", "8")
    subprocess.run([sys.executable, EXAMPLES / script, *make], check=True, timeout=100)
    train = (*data, "--batch-size", "2", "--batches-per-allreduce", "2")
    train += ("--checkpoint", str(tmp_path / "checkpoint.pt"))
    first = run(Job(), 2, script, *train, "--epochs", "1")
    assert re.findall(r"^\[0\]<stdout>:(Epoch \d)", first, re.MULTILINE) == ["Epoch 1"]
    second = run(Job(), 2, script, *train, "--epochs", "2")
    assert re.findall(r"^\[0\]<stdout>:(Epoch \d)", second, re.MULTILINE) == ["Epoch 2"]


def test_every_example_is_tried_here() -> None:
    tried = {script for script, _, _ in [*RUNS, *RUNS_OF_NIGHTLY]} | {"pytorch_imagenet.py"}
    assert tried == set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_says_how_it_is_run(script: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / script).read_text()))
    assert docstring is not None
    assert re.search(rf"^ +horovodrun -np \d python examples/{script}", docstring, re.MULTILINE)
