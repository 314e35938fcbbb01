"""CIFAR-10's python batches: read them, or make a small set in the same format."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_FILES = ("test_batch",)
_CLASSES = 10
_SHAPE = (3, 32, 32)
_MEAN = torch.tensor((0.491, 0.482, 0.447)).view(3, 1, 1)
_DEVIATION = torch.tensor((0.247, 0.243, 0.262)).view(3, 1, 1)


def load_cifar10(folder: str | None) -> tuple[TensorDataset, TensorDataset, str]:
    """Return the images to train with, those to test with, and where they come from.

    Images are float32 of 3 x 32 x 32, labels int64. folder: of `cifar-10-batches-py`; None makes
    500 + 200 images. Raises FileNotFoundError naming the file that is missing.
    """
    if folder is not None:
        path = Path(folder)
        return read_batches(path, TRAIN_FILES), read_batches(path, TEST_FILES), f"files in {folder}"
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        generate(path, images_a_file=100)
        data = read_batches(path, TRAIN_FILES), read_batches(path, TEST_FILES)
    return *data, "generated images of ten kinds of stripes"


def read_batches(folder: Path, names: tuple[str, ...]) -> TensorDataset:
    """Read files of the python version of the data set (pickles: only from who is trusted)."""
    batches = []
    for name in names:
        if not (folder / name).exists():
            raise FileNotFoundError(f"no {name!r} in {str(folder)!r}: give cifar-10-batches-py")
        with (folder / name).open("rb") as file:
            batches.append(pickle.load(file, encoding="bytes"))
    pixels = torch.from_numpy(np.concatenate([batch[b"data"] for batch in batches]))
    labels = torch.tensor([label for batch in batches for label in batch[b"labels"]])
    images = (pixels.view(-1, *_SHAPE) / 255 - _MEAN) / _DEVIATION
    return TensorDataset(images, labels)


def generate(folder: Path, images_a_file: int) -> None:
    """Write all six files; an image is noisy stripes whose direction and width say the class."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[0:32, 0:32]
    for name in TRAIN_FILES + TEST_FILES:
        labels = random.integers(
            0, _CLASSES, 2 * images_a_file if name in TEST_FILES else images_a_file
        )
        angle = labels % 5 * np.pi / 5
        period = np.where(labels < 5, 5.0, 10.0)
        across = np.cos(angle)[:, None, None] * rows + np.sin(angle)[:, None, None] * columns
        phase = random.uniform(0, 2 * np.pi, (len(labels), 1, 1))
        stripes = np.sin(2 * np.pi * across / period[:, None, None] + phase)
        colour = random.uniform(0.5, 1, (len(labels), 3, 1, 1))
        noise = random.normal(0, 0.3, (len(labels), *_SHAPE))
        pixels = np.clip(128 + 90 * (stripes[:, None] * colour + noise), 0, 255).astype(np.uint8)
        batch = {b"data": pixels.reshape(len(labels), -1), b"labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch))
