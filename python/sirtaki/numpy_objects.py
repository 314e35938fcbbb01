"""Exchange of Python objects, as arrays of bytes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from sirtaki.core import state
from sirtaki.core.membership import number_of
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.core.vouching import Call
from sirtaki.numpy_ops import Array, allgather, broadcast


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object on every rank; what the others give is ignored.

    Args:
        obj: Anything `cloudpickle` takes, or `pickle` where that is not installed.
        root_rank: The rank, counted among all ranks, whose object is sent.
        name: Pairs the call with those of the other ranks; the same on all of them.
        process_set: The ranks that take part; the root must be among them.

    Returns:
        On the root the object itself, elsewhere a copy of it.

    Raises:
        HorovodInternalError: The ranks disagree on the root, a rank was lost, or the object was
            altered between hosts; it is not unpickled then.
    """
    name = "broadcast_object" if name is None else name
    vouching = state.current_world().vouching
    call = Call("broadcast_object", name, number_of(process_set))
    if state.rank() == root_rank:
        data = _pickled(obj)
        header = vouching.header(call, root_rank, data.data)
        broadcast(np.frombuffer(header, np.uint8), root_rank, f"{name}.sz", process_set)
        broadcast(data, root_rank, f"{name}.t", process_set)
        return obj
    empty = np.empty(vouching.header_bytes, np.uint8)
    received = broadcast(empty, root_rank, f"{name}.sz", process_set)
    vouched = vouching.parse(call, root_rank, received.tobytes())
    data = broadcast(np.empty(vouched.size, np.uint8), root_rank, f"{name}.t", process_set)
    vouching.require(call, root_rank, vouched, data.data)
    return pickle.loads(data.data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks, in order of rank; arguments as `broadcast_object`."""
    name = "allgather_object" if name is None else name
    vouching = state.current_world().vouching
    call = Call("allgather_object", name, number_of(process_set))
    members = process_set.ranks or []
    mine = _pickled(obj)
    header = np.frombuffer(vouching.header(call, state.rank(), mine.data), np.uint8)
    headers = allgather(header[np.newaxis], f"{name}.sz", process_set)
    vouched = [
        vouching.parse(call, rank, each.tobytes())
        for rank, each in zip(members, headers, strict=True)
    ]
    data = allgather(mine, f"{name}.t", process_set)
    ends = np.cumsum([each.size for each in vouched])
    parts = np.split(data, ends[:-1])
    for rank, each, part in zip(members, vouched, parts, strict=True):
        vouching.require(call, rank, each, part.data)
    return [pickle.loads(part.data) for part in parts]


def _pickled(obj: Any) -> Array:
    try:  # it pickles lambdas and what is defined in the main script, too
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    return np.frombuffer(pickler.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL), np.uint8)
