"""PyTorch's requirements of the collectives: one device, autograd, vmap, the compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import torch
from torch.compiler import is_compiling

from sirtaki.core.errors import HorovodInternalError

P = ParamSpec("P")
T = TypeVar("T")


def untraced(function: Callable[P, T]) -> Callable[P, T]:
    """Make torch.compile call a function as it is, between two graphs.

    Handles cannot be in a graph, and the compiler must not read what makes them: parts of that code
    fail in it.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        # Not while nothing is compiled: it imports the compiler, which takes a second.
        if is_compiling():
            called: Callable[P, T] = torch.compiler.disable(function)
            return called(*args, **kwargs)
        return function(*args, **kwargs)

    return run


def check_one_device(tensors: Sequence[torch.Tensor]) -> None:
    """Refuse a group whose tensors are on several devices."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        found = ", ".join(sorted(map(str, devices)))
        raise HorovodInternalError(
            f"the tensors of a group must be on one device, got tensors on {found}"
        )


def wants_grad(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether autograd, or a torch.func transform, must follow an operation on these."""
    if torch._C._are_functorch_transforms_active():
        return True
    for tensor in tensors:
        if tensor.requires_grad:
            return torch.is_grad_enabled()
    return False


def batch_at(
    dim: int, tensors: Sequence[torch.Tensor], in_dims: Sequence[int | None]
) -> tuple[list[torch.Tensor], tuple[int | None, ...]]:
    """Return the tensors with torch.vmap's mapped dimension moved to `dim`, and its position.

    It must be the same on all ranks, and after the rows in operations on rows.
    """
    moved = [
        tensor if at is None else tensor.movedim(at, dim)
        for tensor, at in zip(tensors, in_dims, strict=True)
    ]
    return moved, tuple(None if at is None else dim for at in in_dims)
