"""One layer's place in a net: what it reads and writes, and what it ran with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from sirtaki_caffe.layers.base import Layer, Param
from sirtaki_caffe.net.blob import Blob

_Values = TypeVar("_Values", torch.Tensor, torch.Tensor | None)


@dataclass
class Step:
    """A layer of a net.

    Args:
        layer: The layer.
        bottoms: What it reads.
        tops: What it writes; in place where one of them is a bottom.
        loss_weights: One a top; 0: no part of the loss.
        seeds: The gradients where a backward begins: loss weights, times the processes where a
            top's items are summed.
        averaged: For each bottom, whether the layer needs its mean over the processes.
        wants: For each bottom, whether its gradient is needed.
        needs_backward: Whether the layer runs in a backward pass.
        complete: Params whose whole gradient is there after this layer's backward.
        ran: Bottoms and tops of the last forward with gradients.
    """

    layer: Layer
    bottoms: list[Blob]
    tops: list[Blob]
    loss_weights: list[float]
    seeds: list[float]
    averaged: list[bool]
    wants: list[bool] = field(default_factory=list)
    needs_backward: bool = False
    complete: list[Param] = field(default_factory=list)
    ran: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None

    def __post_init__(self) -> None:
        #: Its tops are written by the program, not by a forward pass.
        self.is_input = self.layer.proto.type == "Input"
        self.has_loss = any(self.loss_weights)
        self.in_place = any(top is bottom for top in self.tops for bottom in self.bottoms)

    def fits(self, bottoms: Sequence[torch.Tensor]) -> bool:
        """Whether bottoms of an earlier run have the shapes that they have now."""
        return all(b.shape == now.shape for b, now in zip(bottoms, self.bottoms, strict=True))

    def loss(self, tops: Sequence[torch.Tensor]) -> torch.Tensor:
        """Its part of the loss; the gradient is put where a backward begins."""
        parts = []
        for blob, top, weight in zip(self.tops, tops, self.seeds, strict=True):
            if not weight:
                continue
            values = top.detach()
            if blob.diff is None:
                blob.diff = torch.full_like(values, weight)
            total = values if values.dim() == 0 else values.sum()
            parts.append(total if weight == 1.0 else total * weight)
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def means(self, bottoms: Sequence[_Values], way: str) -> list[_Values]:
        """Values of the bottoms, or their gradients; where the layer needs them, their means.

        Args:
            bottoms: One each.
            way: "forward", "backward" or "again"; one for each way that processes meet.
        """
        if not any(self.averaged):
            return list(bottoms)
        mean, name = self.layer.context.world.mean, self.layer.name
        return [
            mean(value, f"{name}.{way}.{place}") if averages and value is not None else value
            for place, (value, averages) in enumerate(zip(bottoms, self.averaged, strict=True))
        ]
