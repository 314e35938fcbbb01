"""Data-parallel training: Horovod's API on today's frameworks.

This package works on numpy arrays; ``sirtaki.torch`` on PyTorch tensors.  A script
started by ``horovodrun`` calls ``init()``; without a launcher that gives a world of one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirtaki.core.errors import (
        CollectiveTimeoutError,
        HorovodInternalError,
        HostsUpdatedInterrupt,
        MismatchError,
        PeerLostError,
    )
    from sirtaki.core.operations.objects import allgather_object, broadcast_object
    from sirtaki.core.operations.reduce_ops import Adasum, Average, Max, Min, Product, Sum
    from sirtaki.core.tracing.hooks import OperationEvent, add_hooks
    from sirtaki.core.tracing.spans import trace
    from sirtaki.core.world.lifecycle import init, shutdown
    from sirtaki.core.world.process_sets import ProcessSet, global_process_set
    from sirtaki.core.world.registration import add_process_set, remove_process_set
    from sirtaki.core.world.state import (
        cross_rank,
        cross_size,
        is_homogeneous,
        is_initialized,
        local_rank,
        local_size,
        rank,
        size,
        snapshot,
        start_timeline,
        stop_timeline,
    )
    from sirtaki.core.world.world import World
    from sirtaki.launch.api import run
    from sirtaki.numpy.groups import (
        grouped_allgather,
        grouped_allgather_async,
        grouped_allreduce,
        grouped_allreduce_,
        grouped_allreduce_async,
        grouped_allreduce_async_,
        grouped_reducescatter,
        grouped_reducescatter_async,
    )
    from sirtaki.numpy.memory import empty
    from sirtaki.numpy.ops import (
        allgather,
        allgather_async,
        allreduce,
        allreduce_,
        allreduce_async,
        allreduce_async_,
        alltoall,
        alltoall_async,
        barrier,
        broadcast,
        broadcast_,
        broadcast_async,
        broadcast_async_,
        join,
        poll,
        reducescatter,
        reducescatter_async,
        synchronize,
    )
    from sirtaki.numpy.pairs import ANY_SOURCE, irecv, isend, recv, send
    from sirtaki.numpy.rooted import (
        gather,
        gather_async,
        reduce,
        reduce_async,
        scatter,
        scatter_async,
    )
    from sirtaki.rendezvous.world.placement import Placement, placements

    __version__: str

# Imported on first use: the launcher and the doctor must work where numpy or the core does not.
_MODULES = {
    "sirtaki.core.errors": (
        "CollectiveTimeoutError",
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "MismatchError",
        "PeerLostError",
    ),
    "sirtaki.core.operations.objects": ("allgather_object", "broadcast_object"),
    "sirtaki.core.tracing.hooks": ("OperationEvent", "add_hooks"),
    "sirtaki.core.tracing.spans": ("trace",),
    "sirtaki.core.world.lifecycle": ("init", "shutdown"),
    "sirtaki.core.world.process_sets": ("ProcessSet", "global_process_set"),
    "sirtaki.core.operations.reduce_ops": (
        "Adasum",
        "Average",
        "Max",
        "Min",
        "Product",
        "Sum",
    ),
    "sirtaki.core.world.registration": ("add_process_set", "remove_process_set"),
    "sirtaki.core.world.state": (
        "cross_rank",
        "cross_size",
        "is_homogeneous",
        "is_initialized",
        "local_rank",
        "local_size",
        "rank",
        "size",
        "snapshot",
        "start_timeline",
        "stop_timeline",
    ),
    "sirtaki.core.world.world": ("World",),
    "sirtaki.launch.api": ("run",),
    "sirtaki.numpy.groups": (
        "grouped_allgather",
        "grouped_allgather_async",
        "grouped_allreduce",
        "grouped_allreduce_",
        "grouped_allreduce_async",
        "grouped_allreduce_async_",
        "grouped_reducescatter",
        "grouped_reducescatter_async",
    ),
    "sirtaki.numpy.memory": ("empty",),
    "sirtaki.numpy.ops": (
        "allgather",
        "allgather_async",
        "allreduce",
        "allreduce_",
        "allreduce_async",
        "allreduce_async_",
        "alltoall",
        "alltoall_async",
        "barrier",
        "broadcast",
        "broadcast_",
        "broadcast_async",
        "broadcast_async_",
        "join",
        "poll",
        "reducescatter",
        "reducescatter_async",
        "synchronize",
    ),
    "sirtaki.numpy.pairs": ("ANY_SOURCE", "irecv", "isend", "recv", "send"),
    "sirtaki.rendezvous.world.placement": ("Placement", "placements"),
    "sirtaki.numpy.rooted": (
        "gather",
        "gather_async",
        "reduce",
        "reduce_async",
        "scatter",
        "scatter_async",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        value = importlib.import_module("importlib.metadata").version("sirtaki")
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'sirtaki' has no attribute {name!r}")
    globals()[name] = value
    return value


__all__ = [
    "ANY_SOURCE",
    "Adasum",
    "Average",
    "CollectiveTimeoutError",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "MismatchError",
    "OperationEvent",
    "PeerLostError",
    "Placement",
    "ProcessSet",
    "Product",
    "Sum",
    "World",
    "add_hooks",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "empty",
    "gather",
    "gather_async",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "irecv",
    "is_homogeneous",
    "is_initialized",
    "isend",
    "join",
    "local_rank",
    "local_size",
    "placements",
    "poll",
    "rank",
    "recv",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "run",
    "scatter",
    "scatter_async",
    "send",
    "shutdown",
    "size",
    "snapshot",
    "start_timeline",
    "stop_timeline",
    "synchronize",
    "trace",
]
