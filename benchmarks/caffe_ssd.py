"""SSD300 written by hand in PyTorch, with its loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Ssd300(nn.Module):
    """SSD300 on VGG-16 with 21 classes, and its loss."""

    #: Channels, and priors of a place, of the maps that boxes are read from.
    _MAPS = ((512, 4), (1024, 6), (512, 6), (256, 6), (256, 4), (256, 4))

    def __init__(self, priors: torch.Tensor) -> None:
        super().__init__()
        self.priors, self.variances = priors.reshape(2, -1, 4)
        self.low = _stages(3, ((64, 2), (128, 2), (256, 3), (512, 3)))
        self.scale = nn.Parameter(torch.full((512, 1, 1), 20.0))
        self.high = nn.Sequential(
            *(nn.MaxPool2d(2), *_stages(512, ((512, 3),)), nn.MaxPool2d(3, 1, 1)),
            *(nn.Conv2d(512, 1024, 3, padding=6, dilation=6), nn.ReLU(inplace=True)),
            *(nn.Conv2d(1024, 1024, 1), nn.ReLU(inplace=True)),
        )
        extras = ((1024, 256, 512, 2, 1), (512, 128, 256, 2, 1), *[(256, 128, 256, 1, 0)] * 2)
        self.extras = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(inputs, width, 1), nn.ReLU(inplace=True)),
                *(nn.Conv2d(width, outputs, 3, stride, pad), nn.ReLU(inplace=True)),
            )
            for inputs, width, outputs, stride, pad in extras
        )
        self.loc = nn.ModuleList(nn.Conv2d(c, 4 * p, 3, padding=1) for c, p in self._MAPS)
        self.conf = nn.ModuleList(nn.Conv2d(c, 21 * p, 3, padding=1) for c, p in self._MAPS)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low = self.low(x)
        maps = [nn.functional.normalize(low) * self.scale, self.high(low)]
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        loc, conf = (
            [
                head(each).permute(0, 2, 3, 1).flatten(1)
                for head, each in zip(heads, maps, strict=True)
            ]
            for heads in (self.loc, self.conf)
        )
        items = len(x)
        return torch.cat(loc, 1).view(items, -1, 4), torch.cat(conf, 1).view(items, -1, 21)

    def ordered(self) -> list[nn.Parameter]:
        """Its parameters in the order in which Caffe's net has its layers."""
        heads = [head for pair in zip(self.loc, self.conf, strict=True) for head in pair]
        behind = [p for part in (self.high, self.extras, *heads) for p in part.parameters()]
        return [*self.low.parameters(), self.scale, *behind]

    def loss(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Against rows (image, class, instance, corners, difficult)."""
        loc, conf = self(x)
        rows = rows.reshape(-1, 8)
        boxes, labels = zip(
            *(self._wanted(rows[rows[:, 0] == i]) for i in range(len(x))), strict=True
        )
        wanted, label = torch.stack(boxes), torch.stack(labels)
        positive = label > 0
        losses = nn.functional.cross_entropy(conf.flatten(0, 1), label.flatten(), reduction="none")
        losses = losses.view_as(label)
        hardest = losses.detach().masked_fill(positive, -1).argsort(1, True).argsort(1)
        chosen = positive | (hardest < 3 * positive.sum(1, True))
        of_boxes = nn.functional.smooth_l1_loss(loc[positive], wanted[positive], reduction="sum")
        return (of_boxes + losses[chosen].sum()) / positive.sum().clamp(min=1)

    def _wanted(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For each prior the code of its box, and its label."""
        boxes, p = rows[:, 3:7], self.priors
        sides = torch.minimum(p[:, None, 2:], boxes[:, 2:]) - torch.maximum(
            p[:, None, :2], boxes[:, :2]
        )
        common = sides.clamp(min=0).prod(2)
        areas = [(b[:, 2:] - b[:, :2]).prod(1) for b in (p, boxes)]
        overlap = common / (areas[0][:, None] + areas[1] - common)
        most, nearest = overlap.max(1)
        best = overlap.argmax(0)
        most[best], nearest[best] = 1, torch.arange(len(boxes))
        found = boxes[nearest]
        size, own = p[:, 2:] - p[:, :2], found[:, 2:] - found[:, :2]
        shift = (found[:, :2] + own / 2 - p[:, :2] - size / 2) / size
        code = torch.cat([shift, (own / size).log()], 1) / self.variances
        return code, (rows[nearest, 1] * (most >= 0.5)).long()


def _stages(inputs: int, sizes: Sequence[tuple[int, int]]) -> nn.Sequential:
    """Stages of 3x3 convolutions as VGG has them, with pooling between them."""
    layers: list[nn.Module] = []
    for stage, (outputs, count) in enumerate(sizes):
        if stage:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        for _ in range(count):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
    return nn.Sequential(*layers)
