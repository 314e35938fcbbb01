"""Compressions that transform gradients, with collectives of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import torch

from sirtaki.core.operations.handles import forget
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import Reduction
from sirtaki.torch.gradients.error_feedback import ErrorFeedback
from sirtaki.torch.ops.allreduce import start_allreduce
from sirtaki.torch.ops.exchange import allgather_async
from sirtaki.torch.ops.handles import return_inputs, runner_of, stage_in_place, synchronize


class Sums(NamedTuple):
    """Contiguous tensors, which a transformation needs reduced over the ranks, in place."""

    tensors: list[torch.Tensor]


class Rows(NamedTuple):
    """Some bytes; a transformation needs those of all ranks, a row each, in their order."""

    row: torch.Tensor


# What a transformation needs from the other ranks, one after the other. It is sent the rows.
Steps = Generator[Sums | Rows, Any, None]
# What a sum over so many ranks is multiplied by.
Scale = Callable[[int], float]


class Transformation:
    """What an optimizer's gradients go through, with what it keeps of them.

    Attributes:
        feedback: What has not been sent yet of this rank's gradients.
    """

    def __init__(self) -> None:
        self.feedback = ErrorFeedback()

    def reduce(
        self,
        params: Sequence[Any],
        names: Sequence[str],
        gradients: Sequence[torch.Tensor],
        scale: Scale,
    ) -> Steps:
        """Replace gradients by what all ranks make of them; `settle` follows.

        Args:
            params: By them it keeps what it needs for the next step.
            names: Of the parameters, the same on all ranks.
            gradients: Dense ones, of one device.
            scale: As the reduction's, for sums that the transformation makes itself.
        """
        raise NotImplementedError

    def settle(self, *, used: bool) -> None:
        """Keep what this step's gradients leave behind, or forget it with them."""
        self.feedback.settle(used=used)

    def shared(self, params: Sequence[Any]) -> dict[int, torch.Tensor] | None:
        """Return what is kept and the same on all ranks, by the number of the parameter."""
        return None

    def load_shared(
        self, kept: dict[int, torch.Tensor] | None, params: Sequence[torch.Tensor]
    ) -> None:
        """Go on from what `shared` returned."""


def scale_of(reduction: Reduction) -> Scale:
    """Return what this reduction multiplies sums by."""
    op, before, after, _ = reduction
    return lambda ranks: before * after / (ranks if op == Average else 1)


class Exchange:
    """A transformation's steps, which run on the engine.

    Args:
        steps: The steps; the first operation starts at once.
        name: Of the operations.
        reduction: How the tensors of `Sums` are reduced.
    """

    def __init__(self, steps: Steps, name: str, reduction: Reduction) -> None:
        self._steps = steps
        self._name = name
        self._reduction = reduction
        self._round = 0
        self._handle: int | None = None
        self._start(next(steps, None))

    def advance(self) -> bool:
        """Wait for the operation in flight and start the next one; return whether there is one."""
        handle, self._handle = self._handle, None
        if handle is None:
            return False
        arrived = synchronize(handle)
        try:
            self._start(self._steps.send(arrived))
        except StopIteration:
            return False
        return True

    def finish(self) -> None:
        """Do the remaining steps."""
        while self.advance():
            pass

    def forget(self) -> None:
        """Leave an operation in flight to itself."""
        if self._handle is not None:
            forget(self._handle)

    def _start(self, wanted: Sums | Rows | None) -> None:
        if wanted is None:
            return
        name = self._name if self._round == 0 else f"{self._name}, round {self._round + 1}"
        self._round += 1
        if isinstance(wanted, Rows):
            self._handle = allgather_async(wanted.row[None], name, self._reduction.process_set)
            return
        tensors = wanted.tensors
        runner = runner_of(tensors, "allreduce", self._reduction.op)
        staged = stage_in_place(tensors, runner)
        handle = start_allreduce(staged, name, self._reduction, in_place=True, runner=runner)
        self._handle = return_inputs(handle, tensors, single=len(tensors) == 1)
