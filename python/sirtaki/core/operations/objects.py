"""Exchange of Python objects, independent of the framework."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

from sirtaki.core.operations import codes, handles
from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.reduce_ops import Min
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.core.world.unpickling import Call

Memory = bytearray | memoryview


class _Bytes:
    """Writable memory as the core's tensors: rows of one byte."""

    def view(self, tensor: Memory) -> tuple[int, tuple[int, ...], int]:
        address = ctypes.addressof(ctypes.c_char.from_buffer(tensor)) if tensor else 0
        return address, (len(tensor),), codes.U8

    def contiguous(self, tensor: Memory) -> Memory:
        return tensor

    def empty_like(self, tensor: Memory) -> Memory:
        return bytearray(len(tensor))

    def from_buffer(self, buffer: Any, like: Memory, shape: tuple[int, ...]) -> Memory:
        return memoryview(buffer)

    def splits(self, splits: object) -> list[int]:
        raise TypeError("objects are not split")

    def wrap_splits(self, received: list[int], like: object) -> Memory:
        raise TypeError("objects are not split")


_collectives: Collectives[Memory] = Collectives(_Bytes())


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object on every rank; other ranks' objects are ignored.

    Args:
        obj: anything `cloudpickle` accepts, or `pickle` if that is not installed.
        root_rank: the rank, counted among all ranks, whose object is sent.
        name: matches the call with those of the other ranks; the same on all of them.
        process_set: the ranks that take part; the root must be among them.

    Returns:
        On the root the object itself, elsewhere a copy of it.

    Raises:
        HorovodInternalError: the ranks disagree on the root, a rank was lost, or the object was
            altered between hosts; it is not unpickled then.
    """
    name = "broadcast_object" if name is None else name
    seals = state.current_world().seals
    call = Call("broadcast_object", name, number_of(process_set))
    if state.rank() == root_rank:
        data = pickled(obj)
        header = bytearray(seals.header(call, root_rank, memoryview(data)))
        _broadcast(header, root_rank, f"{name}.sz", process_set)
        _broadcast(data, root_rank, f"{name}.t", process_set)
        return obj
    header = bytearray(seals.header_bytes)
    _broadcast(header, root_rank, f"{name}.sz", process_set)
    sealed = seals.parse(call, root_rank, bytes(header))
    data = bytearray(sealed.size)
    _broadcast(data, root_rank, f"{name}.t", process_set)
    seals.require(call, root_rank, sealed, memoryview(data))
    return pickle.loads(data)


def flag_of_first(flag: bool, name: str) -> bool:
    """Return rank 0's flag on every rank, without pickling anything; False if a rank has joined.

    Args:
        flag: other ranks' values are ignored.
        name: matches the call with those of the other ranks.

    Raises:
        HorovodInternalError: a rank was lost.
    """
    # A rank that has joined contributes zero.
    data = bytearray([flag or state.rank() > 0])
    least = (Min, 1.0, 1.0, global_process_set)
    handles.synchronize(_collectives.allreduce_async([data], [data], name, least, waits=True))
    return bool(data[0])


def allgather_object(
    obj: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks, in order of rank.

    Args:
        obj: anything `cloudpickle` accepts, or `pickle` if that is not installed.
        name: matches the call with those of the other ranks; the same on all of them.
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: a rank was lost, or an object was altered between hosts; none is
            unpickled then.
    """
    name = "allgather_object" if name is None else name
    seals = state.current_world().seals
    call = Call("allgather_object", name, number_of(process_set))
    members = process_set.ranks or []
    mine = pickled(obj)
    header = bytearray(seals.header(call, state.rank(), memoryview(mine)))
    headers = _allgather(header, f"{name}.sz", process_set)
    length = seals.header_bytes
    sealed = [
        seals.parse(call, rank, bytes(headers[i * length : (i + 1) * length]))
        for i, rank in enumerate(members)
    ]
    data = _allgather(mine, f"{name}.t", process_set)
    parts = []
    for rank, each in zip(members, sealed, strict=True):
        parts.append(data[: each.size])
        data = data[each.size :]
        seals.require(call, rank, each, parts[-1])
    return [pickle.loads(part) for part in parts]


def pickled(obj: Any) -> bytearray:
    """Return an object's pickled bytes for sending."""
    try:  # cloudpickle also handles lambdas and definitions in the main script
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    return bytearray(pickler.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))


def _broadcast(data: Memory, root_rank: int, name: str, process_set: ProcessSet) -> None:
    handles.synchronize(
        _collectives.broadcast_async(data, data, root_rank, name, process_set, waits=True)
    )


def _allgather(data: Memory, name: str, process_set: ProcessSet) -> memoryview:
    handle = _collectives.allgather_async([data], name, process_set, waits=True)
    return memoryview(handles.synchronize(handle)[0])
