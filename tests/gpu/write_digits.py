"""Writes scikit-learn's digits as files of MNIST: write_digits.py FOLDER."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from mnist_arrays import load_arrays


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir()
    train, test, _ = load_arrays(None)
    low, high = train[0].min(), train[0].max()
    for part, (images, labels) in (("train", train), ("t10k", test)):
        pixels = np.rint((images - low) / (high - low) * 255).clip(0, 255)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)


if __name__ == "__main__":
    main()
