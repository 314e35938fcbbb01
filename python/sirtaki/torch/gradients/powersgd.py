"""PowerSGD: of each matrix of gradients two thin ones are sent."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sirtaki.torch.gradients.transformation import Scale, Steps, Sums, Transformation


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
