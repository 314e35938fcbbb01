"""An operation on an accelerator, from submission until its results may be used."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sirtaki import _core
from sirtaki.core.operations import codes


@dataclass(eq=False)
class DeviceOperation:
    """The caller's tensors, and the state of the operation.

    inputs: read, in row order. outputs: written; made at launch if the caller passes none. ready:
    event after which the inputs are complete. done: event after which the outputs are.
    """

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    ready: Any = None
    done: Any = None
    received_splits: list[int] = field(default_factory=list)
    error: BaseException | None = None
    launched: threading.Event = field(default_factory=threading.Event)

    def end(self, done: Any = None, error: BaseException | None = None) -> None:
        """Mark it as launched, or store the error of its launch."""
        self.done, self.error = done, error
        self.launched.set()


@dataclass(frozen=True)
class Agreed:
    """An operation with values agreed by all members; `rank` is this rank's index among them."""

    operation: DeviceOperation
    launch: _core.Launch
    rank: int

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.launch.ranks)

    @property
    def root(self) -> int:
        """The root's index among the members."""
        return self.launch.ranks.index(self.launch.root)

    def rows(self, tensor: int) -> list[int]:
        """Return the number of rows of the given result that come from each member."""
        sizes, size = self.launch.sizes, self.size
        if self.launch.kind == codes.ALLTOALL:
            return list(sizes[self.rank :: size])
        return list(sizes[tensor * size : (tensor + 1) * size])

    def sent_rows(self) -> list[int]:
        """Return the number of rows sent to each member in alltoall."""
        return list(self.launch.sizes[self.rank * self.size : (self.rank + 1) * self.size])

    def result_shapes(self) -> list[Sequence[int]]:
        """Return the shapes of results for which the caller passes no tensors."""
        shapes: list[Sequence[int]] = []
        for i, tensor in enumerate(self.operation.inputs):
            if self.launch.kind == codes.REDUCESCATTER:
                rows = rows_of(tensor.shape[0], self.size)[self.rank]
            else:
                rows = sum(self.rows(i))
            shapes.append((rows, *tensor.shape[1:]))
        return shapes


def rows_of(rows: int, members: int) -> list[int]:
    """Return the number of rows of each member: the first ones get one extra row."""
    each, rest = divmod(rows, members)
    return [each + (member < rest) for member in range(members)]
