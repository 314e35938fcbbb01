"""PyTorch's requirements of the collectives: one device, autograd, vmap."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.core.errors import HorovodInternalError


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
