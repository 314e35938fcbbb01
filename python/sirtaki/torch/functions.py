"""Exchange of parameters, optimizer state and Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from sirtaki.core import state
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.torch.exchange_ops import allgather, broadcast_, broadcast_async_
from sirtaki.torch.handles import synchronize
from sirtaki.torch.serialization import from_bytes, to_bytes

Params = Mapping[str, torch.Tensor] | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]


def broadcast_parameters(params: Params, root_rank: int) -> None:
    """Overwrite parameters, in place, with the root's.

    Args:
        params: `model.state_dict()` or another mapping from names to tensors;
            `model.named_parameters()` or other (name, tensor) pairs; or tensors.
        root_rank: the rank whose parameters are sent.

    Raises:
        ValueError: `params` is or contains something else; nothing is sent then.
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


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object on every rank; what the others give is ignored.

    Args:
        obj: anything `cloudpickle` takes, or `pickle` where that is not installed.
        root_rank: the rank, counted among all ranks, whose object is sent.
        name: pairs the call with those of the other ranks; the same on all of them.
        process_set: the ranks that take part; the root must be among them.

    Returns:
        On the root the object itself, elsewhere a copy of it.
    """
    name = "broadcast_object" if name is None else name
    is_root = state.rank() == root_rank
    data = to_bytes(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([data.numel()], dtype=torch.int64)
    broadcast_(size, root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(size.item()), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else from_bytes(data)


def allgather_object(
    obj: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks, in order of rank.

    Args:
        obj: anything `cloudpickle` takes, or `pickle` where that is not installed.
        name: pairs the call with those of the other ranks; the same on all of them.
        process_set: the ranks that take part.
    """
    name = "allgather_object" if name is None else name
    mine = to_bytes(obj)
    sizes = allgather(torch.tensor([mine.numel()], dtype=torch.int64), f"{name}.sz", process_set)
    data = allgather(mine, f"{name}.t", process_set)
    return [from_bytes(part) for part in torch.split(data, sizes.tolist())]
