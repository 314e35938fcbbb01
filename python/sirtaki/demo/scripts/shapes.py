"""Training images: shapes of eight kinds with random positions and sizes, and noise."""

from __future__ import annotations

import numpy as np

KINDS = 8
SIDE = 28  # pixels


def make_shapes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` images, (count, 28, 28) of float32, and which kind each shows."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, KINDS, count)
    size = random.uniform(5, 10, (count, 1, 1))
    row, column = np.mgrid[:SIDE, :SIDE]
    x = np.abs(column - random.uniform(11, 16, (count, 1, 1)))
    y = np.abs(row - random.uniform(11, 16, (count, 1, 1)))
    round_, square = np.hypot(x, y), np.maximum(x, y)
    drawn = np.stack(
        [
            round_ < size,  # disc
            (round_ < size) & (round_ > 0.7 * size),  # ring
            square < size,  # square
            (square < size) & (square > 0.7 * size),  # frame
            x + y < size,  # diamond
            (square < size) & (np.minimum(x, y) < size / 4),  # plus
            (square < size) & (np.abs(x - y) < size / 4),  # cross
            (x < size) & (y < size / 3),  # bar
        ]
    )
    images = drawn[kinds, np.arange(count)] + random.normal(0, 0.5, (count, SIDE, SIDE))
    return images.astype(np.float32), kinds
