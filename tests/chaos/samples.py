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


class Totals:
    """The parameters that a job without faults comes to; remembers those of whole epochs."""

    def __init__(self) -> None:
        self._after = [np.zeros(WIDTH)]

    def digest(self, epochs: int, cursor: int) -> str:
        """Return the digest of the parameters after whole epochs and some samples."""
        while len(self._after) <= epochs:
            self._after.append(self._after[-1] + _sum(len(self._after) - 1, SAMPLES))
        return digest_of(self._after[epochs] + _sum(epochs, cursor))


def _sum(epoch: int, samples: int) -> npt.NDArray[np.float64]:
    return sum((gradient(sample, epoch) for sample in range(samples)), np.zeros(WIDTH))


def digest_of(values: npt.NDArray[np.generic]) -> str:
    """Return a short name of all bits of an array."""
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
