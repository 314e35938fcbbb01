"""What the samples of `make chaos` add to its parameters: exact, in whatever order it comes."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

SAMPLES = 96
WIDTH = 1000


def gradient(sample: int, epoch: int) -> npt.NDArray[np.float64]:
    """Return what a sample adds in an epoch: small whole numbers."""
    values: npt.NDArray[np.float64] = (np.arange(WIDTH) * 17 + sample * 31 + epoch * 7) % 64.0
    return values


def expected(epochs: int, cursor: int) -> str:
    """Return the digest of the parameters after whole epochs and some samples, without faults."""
    total = np.zeros(WIDTH)
    for epoch in range(epochs + 1):
        for sample in range(SAMPLES if epoch < epochs else cursor):
            total += gradient(sample, epoch)
    return digest_of(total)


def digest_of(values: npt.NDArray[np.generic]) -> str:
    """Return a short name of all bits of an array."""
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
