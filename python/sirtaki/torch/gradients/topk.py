"""Top-k: of each block of gradients the numbers of largest magnitude are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from sirtaki.torch.gradients.transformation import Rows, Scale, Steps, Sums, Transformation

# The place in a block and the four bits of a number fill two bytes.
_BLOCK = 1 << 12
_MOST = 7
_LEAST = 2.0**-120  # whose inverse is a float32


class _Layout(NamedTuple):
    """How many numbers there are, in blocks of how many, of which so many are sent."""

    numbers: int
    width: int
    sent: int

    @classmethod
    def of(cls, count: int, density: float) -> _Layout:
        width = min(_BLOCK, count)
        return cls(count, width, max(1, round(density * width)))

    @property
    def blocks(self) -> int:
        return -(-self.numbers // self.width)

    @property
    def padding(self) -> int:
        return self.blocks * self.width - self.numbers


class TopK(Transformation):
    """Sends the largest numbers of each block, in 4 bits with a scale; what is left is kept.

    A block has up to 4,096 numbers of the gradients that are sent together. Blocks, a short form of
    the numbers and feedback are those of "Communication Efficient LLM Pre-training with SparseLoCo"
    (2025).

    Args:
        density: Which share of the numbers is sent.
    """

    def __init__(self, density: float) -> None:
        super().__init__()
        self._density = density

    def reduce(
        self,
        params: Sequence[Any],
        names: Sequence[str],
        gradients: Sequence[torch.Tensor],
        scale: Scale,
    ) -> Steps:
        """See `Transformation`. What is not floating-point is sent as it is."""
        others = [g for g in gradients if not g.is_floating_point() and g.numel()]
        if others:
            yield Sums(others)
        pairs = [
            (param, gradient)
            for param, gradient in zip(params, gradients, strict=True)
            if gradient.is_floating_point() and gradient.numel()
        ]
        if not pairs:
            return
        sizes = [gradient.numel() for _, gradient in pairs]
        layout = _Layout.of(sum(sizes), self._density)
        whole = [self.feedback.add(*pair).reshape(-1).float() for pair in pairs]
        blocks = torch.cat([*whole, whole[0].new_zeros(layout.padding)]).view(-1, layout.width)
        rows = yield Rows(_encode(blocks, layout.sent))
        mean = _decode(rows, layout).mul_(scale(len(rows))).to(blocks.device)
        lost = blocks.view(-1)[: layout.numbers]
        parts = zip(pairs, lost.split(sizes), mean.split(sizes), strict=True)
        for (param, gradient), kept, part in parts:
            gradient.copy_(part.view(gradient.shape))
            self.feedback.keep(param, kept.view(gradient.shape))


def _encode(blocks: torch.Tensor, sent: int) -> torch.Tensor:
    """Return the bytes to send of so many numbers of each block, and leave there what is lost."""
    most, places = blocks.abs().topk(sent, dim=1)
    # Not finite if a number is not.
    scales = most[:, :1] / _MOST
    scales = torch.where(scales < _LEAST, 0, torch.where(scales.isfinite(), scales, torch.nan))
    inverse = torch.where(scales > 0, 1 / scales, 0)
    steps = (blocks.gather(1, places) * inverse).round_()
    blocks.scatter_add_(1, places, -(steps * scales))
    blocks.nan_to_num_(0.0, 0.0, 0.0)  # of what is not finite nothing is kept
    words = (places << 4 | (steps.nan_to_num_().long() & 15)).to(torch.int16)
    return torch.cat([each.cpu().reshape(-1).view(torch.uint8) for each in (scales, words)])


def _decode(rows: torch.Tensor, layout: _Layout) -> torch.Tensor:
    """Return the sum of the numbers in rows of bytes."""
    total = torch.zeros(layout.blocks, layout.width, dtype=torch.float32, device="cpu")
    border = layout.blocks * torch.float32.itemsize
    for row in rows:
        scales = row[:border].clone().view(torch.float32).view(-1, 1)
        words = row[border:].clone().view(torch.int16).view(layout.blocks, -1).long()
        numbers = (((words & 15) ^ 8) - 8) * scales
        total.scatter_add_(1, words >> 4 & (_BLOCK - 1), numbers)
    return total.view(-1)[: layout.numbers]
