"""Exchange of Python objects."""

from __future__ import annotations

from typing import Any

import torch

from sirtaki.core import state
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.torch.exchange_ops import allgather, broadcast_
from sirtaki.torch.serialization import from_bytes, to_bytes


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

    Raises:
        HorovodInternalError: the ranks disagree on the root, or a rank was lost.
    """
    name = "broadcast_object" if name is None else name
    is_root = state.rank() == root_rank
    data = to_bytes(obj) if is_root else torch.empty(0, dtype=torch.uint8, device="cpu")
    size = torch.tensor([data.numel()], dtype=torch.int64, device="cpu")
    broadcast_(size, root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(size.item()), dtype=torch.uint8, device="cpu")
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

    Raises:
        HorovodInternalError: a rank was lost.
    """
    name = "allgather_object" if name is None else name
    mine = to_bytes(obj)
    size = torch.tensor([mine.numel()], dtype=torch.int64, device="cpu")
    sizes = allgather(size, f"{name}.sz", process_set)
    data = allgather(mine, f"{name}.t", process_set)
    return [from_bytes(part) for part in torch.split(data, sizes.tolist())]
