"""Which priors a loss learns from: few images have many objects, all have much background."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sirtaki_caffe.layers.ssd.boxes import kept_by_nms, sizes
from sirtaki_caffe.layers.ssd.matching import NONE

NO_MINING, MAX_NEGATIVE, HARD_EXAMPLE = 0, 1, 2
_LEAST_SIZE = 1e-5


def mine(
    param: Any, matches: np.ndarray, most: np.ndarray, losses: torch.Tensor, boxes: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """The priors of one image that count: with a box, and without.

    Args:
        param: A MultiBoxLossParameter.
        matches: The box of each prior.
        most: The overlap of each with the nearest box.
        losses: Of each prior.
        boxes: By which near candidates are left out, with `nms_param`.

    Returns:
        The numbers of the positive priors, and of the negative ones.
    """
    positive = np.flatnonzero(matches >= 0)
    if param.mining_type == MAX_NEGATIVE:
        candidates = np.flatnonzero((matches == NONE) & (most < param.neg_overlap))
        count = min(int(len(positive) * param.neg_pos_ratio), len(candidates))
    else:
        candidates = np.flatnonzero(matches >= NONE)
        count = min(int(param.sample_size), len(candidates))
    if param.HasField("nms_param") and param.nms_param.nms_threshold > 0:
        candidates = _spread(param.nms_param, candidates, losses, boxes)
    hardest = losses[torch.from_numpy(candidates)].argsort(descending=True, stable=True)
    chosen = np.sort(candidates[hardest[:count].numpy()])
    if param.mining_type == MAX_NEGATIVE:
        return positive, chosen
    return chosen[matches[chosen] >= 0], chosen[matches[chosen] == NONE]


def _spread(
    nms: Any, candidates: np.ndarray, losses: torch.Tensor, boxes: torch.Tensor
) -> np.ndarray:
    places = torch.from_numpy(candidates)
    places = places[sizes(boxes[places]) >= _LEAST_SIZE]
    top_k = nms.top_k if nms.HasField("top_k") else -1
    kept = kept_by_nms(boxes[places], losses[places], nms.nms_threshold, top_k, nms.eta)
    found: np.ndarray = places[kept].numpy()
    return found
