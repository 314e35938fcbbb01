"""The parts of an image that batch_samplers draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.boxes import areas, coverage, shared
from sirtaki_caffe.errors import CaffeError

WHOLE = np.array([0.0, 0.0, 1.0, 1.0])


def check_samplers(samplers: Sequence[Any]) -> None:
    """Check that ranges are valid.

    Raises:
        CaffeError: A range is invalid.
    """
    for sampler in (each.sampler for each in samplers):
        if not 0 < sampler.min_scale <= sampler.max_scale <= 1:
            raise CaffeError("batch_sampler: needs 0 < min_scale <= max_scale <= 1")
        if not 0 < sampler.min_aspect_ratio <= sampler.max_aspect_ratio:
            raise CaffeError("batch_sampler: needs 0 < min_aspect_ratio <= max_aspect_ratio")


def sample(
    samplers: Sequence[Any], corners: np.ndarray, random: np.random.Generator
) -> np.ndarray | None:
    """Return one of the parts that the samplers accept; None: the whole image.

    Args:
        samplers: BatchSamplers.
        corners: The boxes of the image.
        random: The item's random generator.
    """
    accepted: list[np.ndarray] = []
    for sampler in samplers:
        if not sampler.use_original_image:
            continue
        found = 0
        for _ in range(sampler.max_trials):
            if sampler.HasField("max_sample") and found >= sampler.max_sample:
                break
            part = WHOLE
            if sampler.HasField("sampler"):
                part = _drawn(sampler.sampler, random)
            if _satisfies(part, corners, sampler.sample_constraint):
                found += 1
                accepted.append(part)
    return accepted[int(random.integers(len(accepted)))] if accepted else None


def _drawn(sampler: Any, random: np.random.Generator) -> np.ndarray:
    scale = random.uniform(sampler.min_scale, sampler.max_scale)
    ratio = random.uniform(sampler.min_aspect_ratio, sampler.max_aspect_ratio)
    ratio = min(max(ratio, scale**2), 1 / scale**2)
    width, height = min(1.0, scale * ratio**0.5), min(1.0, scale / ratio**0.5)
    x, y = random.uniform(0, 1 - width), random.uniform(0, 1 - height)
    return np.array([x, y, x + width, y + height])


def _satisfies(part: np.ndarray, corners: np.ndarray, constraint: Any) -> bool:
    """Return whether some box satisfies the constraint.

    As in Caffe, the first kind of limit that is given decides: a box within it suffices, regardless
    of later limits, and a box outside of it is not checked again.
    """
    common = shared(corners, part)
    own, whole = areas(corners), areas(part[None])[0]
    values = {
        "jaccard_overlap": coverage(common, own + whole - common),
        "sample_coverage": coverage(common, np.full_like(common, whole)),
        "object_coverage": coverage(common, own),
    }
    for kind, value in values.items():
        low, high = _limit(constraint, f"min_{kind}"), _limit(constraint, f"max_{kind}")
        if low is None and high is None:
            continue
        above = value >= (-np.inf if low is None else low)
        return bool((above & (value <= (np.inf if high is None else high))).any())
    return True


def _limit(constraint: Any, name: str) -> float | None:
    return float(getattr(constraint, name)) if constraint.HasField(name) else None
