"""Exchange of Python objects."""

from __future__ import annotations

from typing import Any

import torch

from sirtaki.core import state
from sirtaki.core.membership import number_of
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.core.vouching import Call
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
        HorovodInternalError: the ranks disagree on the root, a rank was lost, or the object was
            altered between hosts; it is not unpickled then.
    """
    name = "broadcast_object" if name is None else name
    vouching = state.current_world().vouching
    call = Call("broadcast_object", name, number_of(process_set))
    if state.rank() == root_rank:
        data = to_bytes(obj)
        header = _as_tensor(vouching.header(call, root_rank, _as_bytes(data)))
        broadcast_(header, root_rank, f"{name}.sz", process_set)
        broadcast_(data, root_rank, f"{name}.t", process_set)
        return obj
    header = torch.empty(vouching.header_bytes, dtype=torch.uint8, device="cpu")
    broadcast_(header, root_rank, f"{name}.sz", process_set)
    vouched = vouching.parse(call, root_rank, bytes(_as_bytes(header)))
    data = torch.empty(vouched.size, dtype=torch.uint8, device="cpu")
    broadcast_(data, root_rank, f"{name}.t", process_set)
    vouching.require(call, root_rank, vouched, _as_bytes(data))
    return from_bytes(data)


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
        HorovodInternalError: a rank was lost, or an object was altered between hosts; none is
            unpickled then.
    """
    name = "allgather_object" if name is None else name
    vouching = state.current_world().vouching
    call = Call("allgather_object", name, number_of(process_set))
    members = process_set.ranks or []
    mine = to_bytes(obj)
    header = _as_tensor(vouching.header(call, state.rank(), _as_bytes(mine)))
    headers = allgather(header.unsqueeze(0), f"{name}.sz", process_set)
    vouched = [
        vouching.parse(call, rank, bytes(_as_bytes(header)))
        for rank, header in zip(members, headers, strict=True)
    ]
    data = allgather(mine, f"{name}.t", process_set)
    parts = torch.split(data, [each.size for each in vouched])
    for rank, each, part in zip(members, vouched, parts, strict=True):
        vouching.require(call, rank, each, _as_bytes(part))
    return [from_bytes(part) for part in parts]


def _as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _as_bytes(data: torch.Tensor) -> memoryview:
    return data.numpy().data
