"""Exchange of parameters, optimizer state and Python objects, in Horovod's module layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state
from sirtaki.torch.ops.exchange import broadcast_async_
from sirtaki.torch.ops.handles import synchronize

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]

Params = Mapping[str, torch.Tensor] | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]


def broadcast_parameters(params: Params, root_rank: int) -> None:
    """Overwrite parameters, in place, with the root's.

    Args:
        params: `model.state_dict()` or another mapping from names to tensors;
            `model.named_parameters()` or other (name, tensor) pairs; or tensors.
        root_rank: the rank whose parameters are sent.

    Raises:
        ValueError: `params` is or contains another type; nothing is sent.
        HorovodInternalError: the ranks disagree on a shape or dtype, or a rank was lost.
    """
    pairs = _named_tensors(params)
    handles = [broadcast_async_(tensor, root_rank, name) for name, tensor in pairs]
    for handle in handles:
        synchronize(handle)


def _named_tensors(params: Any) -> list[tuple[str | None, torch.Tensor]]:
    if isinstance(params, Mapping):
        params = sorted(params.items())
    elif isinstance(params, str | torch.Tensor | torch.nn.Module) or not isinstance(
        params, Iterable
    ):
        raise ValueError(f"invalid params of type: {type(params)}")
    pairs = [item if isinstance(item, tuple) else (None, item) for item in params]
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[1], torch.Tensor):
            raise ValueError(
                "broadcast_parameters: expected tensors or (name, tensor) pairs, got "
                f"{pair[0]!r} with {', '.join(type(part).__name__ for part in pair[1:])}"
            )
    return pairs
