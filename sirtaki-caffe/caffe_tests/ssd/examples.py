"""One image, seven priors and three boxes, whose loss is known by hand."""

from __future__ import annotations

import torch

PRIORS = [
    (0, 0, 0.4, 0.4),
    (0.05, 0.05, 0.45, 0.45),
    (0.3, 0.3, 0.7, 0.7),
    (0.55, 0.55, 0.95, 0.95),
    (0.6, 0.1, 0.9, 0.4),
    (-0.1, 0.6, 0.3, 1),
    (0.1, 0, 0.4, 0.35),
]
VARIANCES = (0.1, 0.1, 0.2, 0.2)
BOXES = [(1, 0.02, 0.02, 0.42, 0.42), (2, 0.05, 0, 0.4, 0.4), (2, 0.6, 0.5, 0.9, 0.9)]
SCORES = [(0, 2, 1), (1, 0, 3), (0.5, 0.2, 0.1), (0, 0, 2), (1, 2, 0), (3, 0, 0), (0, 1, 0)]
SAID = (0.1, -0.1, 0.2, -0.2)


def prior_blob() -> torch.Tensor:
    rows = torch.tensor(PRIORS, dtype=torch.float64)
    variances = torch.tensor(VARIANCES, dtype=torch.float64).expand_as(rows)
    return torch.stack([rows.reshape(-1), variances.reshape(-1)])[None]


def label_blob(boxes: list[tuple[float, ...]] = BOXES, image: int = 0) -> torch.Tensor:
    rows = [(image, label, 0, *corners, 0) for label, *corners in boxes]
    return torch.tensor(rows or [(-1.0,) * 8], dtype=torch.float64)[None, None]


def loc_blob(images: int = 1) -> torch.Tensor:
    return torch.tensor(SAID * len(PRIORS), dtype=torch.float64).expand(images, -1).clone()


def conf_blob(images: int = 1) -> torch.Tensor:
    row = torch.tensor(SCORES, dtype=torch.float64).reshape(-1)
    return row.expand(images, -1).clone()
