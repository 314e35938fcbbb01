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
    from sirtaki.core.objects import allgather_object, broadcast_object
    from sirtaki.core.process_sets import (
        ProcessSet,
        add_process_set,
        global_process_set,
        remove_process_set,
    )
    from sirtaki.core.reduce_ops import Adasum, Average, Max, Min, Product, Sum
    from sirtaki.core.snapshot import snapshot
    from sirtaki.core.state import (
        cross_rank,
        cross_size,
        init,
        is_homogeneous,
        is_initialized,
        local_rank,
        local_size,
        rank,
        shutdown,
        size,
        start_timeline,
        stop_timeline,
    )
    from sirtaki.launch.api import run
    from sirtaki.numpy_groups import (
        grouped_allgather,
        grouped_allgather_async,
        grouped_allreduce,
        grouped_allreduce_,
        grouped_allreduce_async,
        grouped_allreduce_async_,
        grouped_reducescatter,
        grouped_reducescatter_async,
    )
    from sirtaki.numpy_memory import empty
    from sirtaki.numpy_ops import (
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
    from sirtaki.numpy_pairs import ANY_SOURCE, irecv, isend, recv, send
    from sirtaki.numpy_rooted import (
        gather,
        gather_async,
        reduce,
        reduce_async,
        scatter,
        scatter_async,
    )

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
    "sirtaki.core.objects": ("allgather_object", "broadcast_object"),
    "sirtaki.core.process_sets": (
        "ProcessSet",
        "add_process_set",
        "global_process_set",
        "remove_process_set",
    ),
    "sirtaki.core.reduce_ops": (
        "Adasum",
        "Average",
        "Max",
        "Min",
        "Product",
        "Sum",
    ),
    "sirtaki.core.snapshot": ("snapshot",),
    "sirtaki.core.state": (
        "cross_rank",
        "cross_size",
        "init",
        "is_homogeneous",
        "is_initialized",
        "local_rank",
        "local_size",
        "rank",
        "shutdown",
        "size",
        "start_timeline",
        "stop_timeline",
    ),
    "sirtaki.launch.api": ("run",),
    "sirtaki.numpy_groups": (
        "grouped_allgather",
        "grouped_allgather_async",
        "grouped_allreduce",
        "grouped_allreduce_",
        "grouped_allreduce_async",
        "grouped_allreduce_async_",
        "grouped_reducescatter",
        "grouped_reducescatter_async",
    ),
    "sirtaki.numpy_memory": ("empty",),
    "sirtaki.numpy_ops": (
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
    "sirtaki.numpy_pairs": ("ANY_SOURCE", "irecv", "isend", "recv", "send"),
    "sirtaki.numpy_rooted": (
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
    "PeerLostError",
    "ProcessSet",
    "Product",
    "Sum",
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
]
