"""Handwritten digits as NumPy arrays: MNIST's own files, or those that come with scikit-learn."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

Digits = tuple[np.ndarray, np.ndarray]  # images and labels

PIXELS = 28  # an image has this many rows and columns
_UNSIGNED_BYTE = 8  # IDX's number of the element type
_TEST_SHARE = 0.2
_SPLIT_SEED = 0


def load_arrays(data_dir: str | None) -> tuple[Digits, Digits, str]:
    """Return (training digits, test digits, what they are); images are float32 of 28x28.

    Over the training digits a pixel has the mean 0 and the standard deviation 1. data_dir: a folder
    with MNIST's four IDX files, plain or .gz; None takes scikit-learn's digits. Raises
    FileNotFoundError or ValueError naming the file.
    """
    train, test, source = _scikit_learn() if data_dir is None else _mnist(Path(data_dir))
    mean, deviation = train[0].mean(), train[0].std(ddof=1)
    scaled = [((images - mean) / deviation, labels) for images, labels in (train, test)]
    return scaled[0], scaled[1], source


def read_idx(path: Path) -> np.ndarray:
    """Return the array in an IDX file of unsigned bytes, plain or .gz.

    Raises ValueError when it is not such a file, or is cut short.
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}") from None
    if len(content) < 4 or content[:3] != bytes((0, 0, _UNSIGNED_BYTE)):
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path} ends within its header")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) != start + math.prod(shape):
        raise ValueError(
            f"{path} has {len(content) - start} bytes of data; its header tells of "
            f"{'x'.join(map(str, shape))}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _mnist(folder: Path) -> tuple[Digits, Digits, str]:
    return _mnist_part(folder, "train"), _mnist_part(folder, "t10k"), f"MNIST from {folder}"


def _mnist_part(folder: Path, part: str) -> Digits:
    images = read_idx(_find(folder, f"{part}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"))
    if images.shape[1:] != (PIXELS, PIXELS) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{folder}: {part} images have the shape {images.shape}, labels {labels.shape}"
        )
    return images.astype(np.float32), labels.astype(np.int64)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"neither {name} nor {name}.gz is in {folder}")


def _scikit_learn() -> tuple[Digits, Digits, str]:
    try:
        from sklearn import datasets, model_selection
    except ImportError as error:
        raise ImportError(
            "the digits come with scikit-learn: pip install scikit-learn, or give --data-dir"
        ) from error

    digits = datasets.load_digits()  # 1797 of 8x8 pixels
    images, labels = _enlarged(digits.images), digits.target.astype(np.int64)
    train, test = model_selection.train_test_split(
        range(len(labels)),
        test_size=_TEST_SHARE,
        random_state=_SPLIT_SEED,
        stratify=labels,
    )
    source = "scikit-learn's digits, scaled from 8x8 to 28x28 (MNIST itself: --data-dir)"
    return (images[train], labels[train]), (images[test], labels[test]), source


def _enlarged(images: np.ndarray) -> np.ndarray:
    """Return square images of PIXELS rows, each pixel between its nearest four."""
    small = images.shape[1]
    at = np.clip((np.arange(PIXELS) + 0.5) * small / PIXELS - 0.5, 0, small - 1)
    before = np.minimum(at.astype(int), small - 2)
    weights = np.zeros((PIXELS, small), np.float32)
    weights[np.arange(PIXELS), before] = 1 - (at - before)
    weights[np.arange(PIXELS), before + 1] = at - before
    return weights @ images.astype(np.float32) @ weights.T
