"""Exchange of Python objects."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirtaki.core import state
from sirtaki.core.membership import number_of
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.core.vouching import Call
from sirtaki.jax.arrays import collectives

Bytes = NDArray[np.uint8]


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

    def send(data: Bytes, part: str) -> Bytes:
        handle = collectives.broadcast_async(
            data, data, root_rank, name=f"{name}.{part}", process_set=process_set, waits=True
        )
        sent: Bytes = collectives.synchronize(handle)[0]
        return sent

    if state.rank() == root_rank:
        data = _to_bytes(obj)
        send(_as_array(vouching.header(call, root_rank, data.data)), "sz")
        send(data, "t")
        return obj
    header = send(np.empty(vouching.header_bytes, np.uint8), "sz")
    vouched = vouching.parse(call, root_rank, header.tobytes())
    data = send(np.empty(vouched.size, np.uint8), "t")
    vouching.require(call, root_rank, vouched, data.data)
    return pickle.loads(data.data)


def allgather_object(
    obj: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks, in rank order.

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
    ranks = process_set.ranks or []

    def gather(data: Bytes, part: str) -> Bytes:
        handle = collectives.allgather_async(
            [data], name=f"{name}.{part}", process_set=process_set, waits=True
        )
        gathered: Bytes = collectives.synchronize(handle)[0]
        return gathered

    mine = _to_bytes(obj)
    header = _as_array(vouching.header(call, state.rank(), mine.data))
    headers = np.split(gather(header, "sz"), len(ranks))
    vouched = [
        vouching.parse(call, rank, header.tobytes())
        for rank, header in zip(ranks, headers, strict=True)
    ]
    ends = np.cumsum([each.size for each in vouched])
    parts = np.split(gather(mine, "t"), ends[:-1])
    for rank, each, part in zip(ranks, vouched, parts, strict=True):
        vouching.require(call, rank, each, part.data)
    return [pickle.loads(part.data) for part in parts]


def _to_bytes(obj: Any) -> Bytes:
    try:  # it pickles lambdas and what is defined in the main script, too
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    return _as_array(pickler.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))


def _as_array(data: bytes) -> Bytes:
    return np.frombuffer(bytearray(data), np.uint8)
