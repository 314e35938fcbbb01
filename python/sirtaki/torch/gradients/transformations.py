"""The transformations of gradients: top-k and PowerSGD, by the compressions that choose them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from sirtaki.torch.compression import Compressor, TransformingCompressor
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


@dataclass(slots=True)
class _Matrix:
    """A gradient as a matrix M, and its factors: M is about left @ right.T."""

    param: Any
    gradient: torch.Tensor
    whole: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor


class PowerSGD(Transformation):
    """Sends the best approximation of a rank that one step of power iteration finds.

    Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization"
    (2019). Unlike there, a rank keeps what its own gradient loses, not its difference from the mean
    of all: both add up to the same over the ranks, but this one is small, and right if ranks leave.

    Args:
        rank: The columns of the factors.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank
        # Where the next step starts: the right factor of the last one.
        self._factors: dict[Any, torch.Tensor] = {}
        self._pending: dict[Any, torch.Tensor] = {}

    def reduce(
        self,
        params: Sequence[Any],
        names: Sequence[str],
        gradients: Sequence[torch.Tensor],
        scale: Scale,
    ) -> Steps:
        """See `Transformation`. Vectors, and matrices that would not get smaller, are sent."""
        matrices: list[_Matrix] = []
        sums: list[torch.Tensor] = []
        for param, name, gradient in zip(params, names, gradients, strict=True):
            if self._pays(gradient):
                matrices.append(self._begin(param, name, gradient))
                sums.append(matrices[-1].left)
            else:
                sums.append(gradient)
        yield Sums(sums)
        if not matrices:
            return
        for matrix in matrices:
            self._turn(matrix)
        yield Sums([matrix.right for matrix in matrices])
        for matrix in matrices:
            self._end(matrix)

    def _pays(self, gradient: torch.Tensor) -> bool:
        if gradient.dim() < 2 or not gradient.is_floating_point() or gradient.numel() == 0:
            return False
        rows = gradient.shape[0]
        columns = gradient.numel() // rows
        return (rows + columns) * self._rank < rows * columns

    def _begin(self, param: Any, name: str, gradient: torch.Tensor) -> _Matrix:
        whole = self.feedback.add(param, gradient).reshape(gradient.shape[0], -1)
        right = self._factors.get(param)
        if right is None or right.shape != (whole.shape[1], self._rank):
            right = self._first(name, whole.shape[1])
        right = right.to(whole)
        return _Matrix(param, gradient, whole, whole @ right, right)

    def _first(self, name: str, rows: int) -> torch.Tensor:
        """Return random numbers, the same on all ranks."""
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.randn(rows, self._rank, generator=generator, device="cpu")

    def _turn(self, matrix: _Matrix) -> None:
        """Make the left factor orthogonal, and the right one that of this rank's gradient."""
        if not bool(matrix.left.isfinite().all()):  # all ranks have the same
            matrix.left.fill_(float("nan"))
        else:
            matrix.left = torch.linalg.qr(matrix.left).Q
        matrix.right = (matrix.left.T @ matrix.whole).T.contiguous()  # fast, unlike whole.T @ left
        matrix.whole.addmm_(matrix.left, matrix.right.T, alpha=-1)

    def _end(self, matrix: _Matrix) -> None:
        mean = matrix.left @ matrix.right.T
        matrix.gradient.copy_(mean.view(matrix.gradient.shape))
        most = float(matrix.right.abs().max())
        if 0 < most < float("inf"):
            self._pending[matrix.param] = matrix.right / most  # so that no power of it vanishes
        elif most != 0:
            matrix.whole.zero_()  # of what is not finite nothing is kept
        self.feedback.keep(matrix.param, matrix.whole.view(matrix.gradient.shape))

    def settle(self, *, used: bool) -> None:
        """See `Transformation`."""
        super().settle(used=used)
        if used:
            self._factors.update(self._pending)
        self._pending.clear()

    def shared(self, params: Sequence[Any]) -> dict[int, torch.Tensor] | None:
        """See `Transformation`: where the next step starts."""
        kept = {i: self._factors[p] for i, p in enumerate(params) if p in self._factors}
        return kept or None

    def load_shared(
        self, kept: dict[int, torch.Tensor] | None, params: Sequence[torch.Tensor]
    ) -> None:
        """See `Transformation`."""
        self._factors = {params[i]: right for i, right in (kept or {}).items() if i < len(params)}


_KINDS: dict[str, type[PowerSGD | TopK]] = {"powersgd": PowerSGD, "topk": TopK}


def transformation_of(compression: type[Compressor]) -> Transformation | None:
    """Return a new transformation, if this compression is one."""
    if isinstance(compression, type) and issubclass(compression, TransformingCompressor):
        return _KINDS[compression.kind](compression.argument)
    return None
