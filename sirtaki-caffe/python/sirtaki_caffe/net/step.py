"""One layer's place in a net: its inputs and outputs, and the data of its last run."""

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
        bottoms: The blobs that it reads.
        tops: The blobs that it writes; in place if one of them is a bottom.
        loss_weights: One per top; 0: not part of the loss.
        seeds: The gradients from which a backward starts: loss weights, times the processes if a
            top's items are summed.
        averaged: For each bottom, whether the layer needs its mean over the processes.
        wants: For each bottom, whether its gradient is needed.
        needs_backward: Whether the layer runs in a backward pass.
        complete: Params whose gradient is complete after this layer's backward.
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
        #: The program writes its tops, not a forward pass.
        self.is_input = self.layer.proto.type == "Input"
        self.has_loss = any(self.loss_weights)
        self.in_place = any(top is bottom for top in self.tops for bottom in self.bottoms)

    def fits(self, bottoms: Sequence[torch.Tensor]) -> bool:
        """Return whether bottoms of an earlier run have the current shapes."""
        return all(b.shape == now.shape for b, now in zip(bottoms, self.bottoms, strict=True))

    def loss(self, tops: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return its part of the loss; set the gradient from which a backward starts."""
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
        """Return values of the bottoms, or their gradients, as means where the layer needs these.

        Args:
            bottoms: A tensor for each bottom.
            way: "forward", "backward" or "again"; which separates the processes' exchanges.
        """
        if not any(self.averaged):
            return list(bottoms)
        mean, name = self.layer.context.world.mean, self.layer.name
        return [
            mean(value, f"{name}.{way}.{place}") if averages and value is not None else value
            for place, (value, averages) in enumerate(zip(bottoms, self.averaged, strict=True))
        ]
