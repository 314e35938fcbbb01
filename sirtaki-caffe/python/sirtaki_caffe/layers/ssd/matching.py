"""Which prior finds which box."""

from __future__ import annotations

import numpy as np
import torch

from sirtaki_caffe.layers.ssd.boxes import overlaps

NONE, IGNORED = -1, -2
_LEAST = 1e-6


def match(
    priors: torch.Tensor, boxes: torch.Tensor, threshold: float | None, inside_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The box that each prior finds, and its overlap with the nearest box.

    Each box has the prior that overlaps it most, the best pair first; of equal ones the lower
    prior, then the lower box.

    Args:
        priors: Of shape (priors, 4).
        boxes: Of one image.
        threshold: Other priors have their nearest box from this overlap on; None: never.
        inside_only: Priors that lie partly outside of the image are ignored.

    Returns:
        For each prior the number of a box, NONE or IGNORED; and the overlap.
    """
    found = np.full(len(priors), NONE)
    if inside_only:
        found[((priors < 0) | (priors > 1)).any(1).numpy()] = IGNORED
    if not len(boxes):
        return found, np.zeros(len(priors))
    pairs = overlaps(priors, boxes).double().numpy()
    pairs[pairs <= _LEAST] = 0
    pairs[found == IGNORED] = 0
    nearest, most = pairs.argmax(1), pairs.max(1)
    left = pairs.copy()
    for _ in range(len(boxes)):
        prior, box = divmod(int(left.argmax()), len(boxes))
        if left[prior, box] == 0:
            break
        found[prior] = box
        left[prior], left[:, box] = 0, 0
    if threshold is not None:
        near = (found == NONE) & (most >= threshold) & (most > 0)
        found[near] = nearest[near]
    return found, most
