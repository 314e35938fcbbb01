"""The MNIST example trains, keeps checkpoints, and reads MNIST's files."""

from __future__ import annotations

import gzip
import importlib.util
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests import needs
from tests.single.launching import Job

pytestmark = [pytest.mark.job, needs.installed("torch", "sklearn")]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPT = str(EXAMPLES / "pytorch_mnist.py")


@pytest.fixture(scope="module")
def mnist_arrays() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mnist_arrays", EXAMPLES / "mnist_arrays.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, images: int = 64) -> None:
    """Noise in MNIST's four files, one of them compressed."""
    random = np.random.default_rng(0)
    for part in ("train", "t10k"):
        pixels = random.integers(0, 256, (images, 28, 28))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        labels = gzip.compress(idx(np.arange(images) % 10))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(labels)


def train(processes: int, *arguments: str) -> list[str]:
    """Run the example and return the lines of its first process."""
    job = Job()
    done = job.run("-np", str(processes), sys.executable, SCRIPT, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("[0]<stdout>:") for line in lines)
    job.wait_until_gone()
    return [line.removeprefix("[0]<stdout>:") for line in lines]


@pytest.mark.slow
def test_two_processes_learn_the_digits() -> None:
    lines = train(2, "--epochs", "6", "--compare-single")
    assert "scikit-learn's digits" in lines[0]
    assert [line.split(":")[0] for line in lines[1:7]] == [f"epoch {n}/6" for n in range(1, 7)]
    accuracy = re.fullmatch(r"Test accuracy: ([\d.]+)%", lines[7])
    assert accuracy is not None
    assert float(accuracy[1]) >= 90
    assert re.fullmatch(r"Speed: \d+ images/s over 2 processes", lines[8])
    speed_up = r"Speed-up: \d+\.\d+ over one process alone \(\d+ images/s\)"
    assert re.fullmatch(speed_up, lines[9])
    assert len(lines) == 10


@pytest.mark.slow
def test_it_runs_without_a_launcher(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--epochs", "1", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        cwd=tmp_path,
    )
    assert f"MNIST from {tmp_path}: 64 to train, 64 to test" in done.stdout
    assert "over 1 processes" in done.stdout


@pytest.mark.slow
def test_training_continues_from_a_checkpoint(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    checkpoint = tmp_path / "model.pt"
    arguments = ("--data-dir", str(tmp_path), "--checkpoint", str(checkpoint))
    train(2, "--epochs", "1", *arguments)
    assert checkpoint.exists()
    lines = train(2, "--epochs", "2", *arguments)
    assert [line.split(":")[0] for line in lines if line.startswith("epoch")] == ["epoch 2/2"]
    assert sorted(p.name for p in tmp_path.glob("model*")) == ["model.pt"]


def test_missing_data_is_named(tmp_path: Path, mnist_arrays: ModuleType) -> None:
    words = f"neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz is in {tmp_path}"
    with pytest.raises(FileNotFoundError, match=re.escape(words)):
        mnist_arrays.load_arrays(str(tmp_path))


def test_idx_files_are_read_plain_and_compressed(tmp_path: Path, mnist_arrays: ModuleType) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    plain, compressed = tmp_path / "plain", tmp_path / "compressed.gz"
    plain.write_bytes(idx(array))
    compressed.write_bytes(gzip.compress(idx(array), mtime=0))
    assert np.array_equal(mnist_arrays.read_idx(plain), array)
    assert np.array_equal(mnist_arrays.read_idx(compressed), array)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a", b"", "not an IDX file"),
        ("a", b"\0\0\x0d\x01" + bytes(8), "not an IDX file of unsigned bytes"),
        ("a", idx(np.zeros((2, 2)))[:7], "ends within its header"),
        ("a", idx(np.zeros((2, 2)))[:-1], "has 3 bytes of data; its header tells of 2x2"),
        ("a", idx(np.zeros((2, 2))) + b"x", "has 5 bytes of data"),
        ("a.gz", idx(np.zeros((2, 2))), "not a whole gzip file"),
        ("a.gz", gzip.compress(idx(np.zeros((9, 9))), mtime=0)[:-9], "not a whole gzip file"),
        ("a.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 20, "not a whole gzip file"),
    ],
)
def test_damaged_idx_files_are_named(
    tmp_path: Path, mnist_arrays: ModuleType, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        mnist_arrays.read_idx(path)
    assert str(path) in str(caught.value)


def test_images_and_labels_must_belong_together(tmp_path: Path, mnist_arrays: ModuleType) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((63, 28, 28))))
    with pytest.raises(ValueError, match=r"train images have the shape \(63, 28, 28\), labels"):
        mnist_arrays.load_arrays(str(tmp_path))
