"""What PyTorch itself wants of the collectives: one device, autograd, vmap."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.core.errors import HorovodInternalError


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
