"""What the makers of data have in common."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sirtaki_caffe.data.images import make_datum
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.data.stores.databases import write_database

HERE = Path(__file__).resolve().parent
_TEST_SHARE = 5  # every fifth digit


def parser(about: str | None) -> argparse.ArgumentParser:
    """A command line with the folder that the nets' paths begin in."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument(
        "--root", type=Path, default=HERE, help="where the nets are run (this folder)"
    )
    return made


def write(path: Path, images: Iterable[tuple[np.ndarray, int]], backend: str = "lmdb") -> None:
    """A database of images, uint8 of (channels, height, width), and labels; replaces another."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with write_database(backend, path) as writer:
        for count, (image, label) in enumerate(images, 1):
            writer.put(f"{count - 1:08d}".encode(), make_datum(image, label).SerializeToString())
    print(f"{path}: {count} records")


def digits() -> tuple[list[tuple[np.ndarray, int]], list[tuple[np.ndarray, int]]]:
    """Training and test digits: those of scikit-learn, 1 x 28 x 28 as MNIST's."""
    from sklearn.datasets import load_digits

    found = load_digits()
    shown = [
        (resize((image[None] * (255 / 16)).astype(np.uint8), 28, 28), int(label))
        for image, label in zip(found.images, found.target, strict=True)
    ]
    test = shown[::_TEST_SHARE]
    train = [item for number, item in enumerate(shown) if number % _TEST_SHARE]
    return train, test
