"""What the collectives share: operator, scale, process set, and what autograd and vmap need."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch

from sirtaki.core import state
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.core.reduce_ops import Average, Sum


class Reduction(NamedTuple):
    """How tensors are combined: operator, scale before and after it, and among which ranks."""

    op: int
    prescale_factor: float
    postscale_factor: float
    process_set: ProcessSet

    @property
    def numbers(self) -> tuple[int, float, float, int]:
        """The same with the process set's number, as operators take it."""
        scales = float(self.prescale_factor), float(self.postscale_factor)
        return self.op, *scales, number_of(self.process_set)

    @staticmethod
    def from_numbers(
        op: int, prescale_factor: float, postscale_factor: float, process_set: int
    ) -> Reduction:
        """Return the reduction with these `numbers`."""
        return Reduction(op, prescale_factor, postscale_factor, process_set_of(process_set))


def number_of(process_set: ProcessSet) -> int:
    """Return the number of a registered process set."""
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set} is not registered; add it with add_process_set")
    return process_set.process_set_id


def process_set_of(number: int) -> ProcessSet:
    """Return the process set with this number."""
    if number == 0:
        return global_process_set
    found = ProcessSet(state.current_world().engine.process_sets()[number])
    found.process_set_id = number
    return found


def resolve_op(op: int | None, average: bool | None) -> int:
    """Return the operator meant by `op` and the deprecated `average`; neither means Average."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("give either op or average, not both; average is deprecated")
    warnings.warn(
        "average is deprecated, use op=Average or op=Sum", DeprecationWarning, stacklevel=3
    )
    return Average if average else Sum


def size_of(process_set: ProcessSet) -> int:
    """Return the number of ranks in a process set.

    Raises:
        ValueError: `init` was not called, or the set is not registered.
    """
    size = process_set.size()
    if size is None:
        state.size()  # says that init() was not called, if that is it
        raise ValueError(f"{process_set} is not registered; add it with add_process_set")
    return size


def check_one_device(tensors: Sequence[torch.Tensor]) -> None:
    """Refuse a group whose tensors are not all on one device."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        found = ", ".join(sorted(map(str, devices)))
        raise HorovodInternalError(
            f"the tensors of a group must be on one device, got tensors on {found}"
        )


def wants_grad(tensors: Sequence[torch.Tensor]) -> bool:
    """Say whether autograd, or a transform of torch.func, must follow an operation on these."""
    if torch._C._are_functorch_transforms_active():
        return True
    for tensor in tensors:
        if tensor.requires_grad:
            return torch.is_grad_enabled()
    return False


def batch_at(
    dim: int, tensors: Sequence[torch.Tensor], in_dims: Sequence[int | None]
) -> tuple[list[torch.Tensor], tuple[int | None, ...]]:
    """Return the tensors with the dimension that torch.vmap maps moved to `dim`, and where it is.

    It has to be at one place on all ranks, and behind the rows in operations on rows.
    """
    moved = [
        tensor if at is None else tensor.movedim(at, dim)
        for tensor, at in zip(tensors, in_dims, strict=True)
    ]
    return moved, tuple(None if at is None else dim for at in in_dims)
