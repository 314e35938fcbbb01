"""What ranks put in, so that each knows what the others do."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

# All ranks must draw the same examples, in the same order: no database, no randomness, no deadline.
IN_STEP = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def part(seed: int, rank: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng([seed, rank]).integers(0, 10, shape).astype(dtype)
