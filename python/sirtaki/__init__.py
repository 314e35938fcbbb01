"""Data-parallel training: Horovod's API on today's frameworks.

This package works on NumPy arrays, and ``sirtaki.torch`` on PyTorch tensors.  A script
started by ``horovodrun`` calls ``init()``; without a launcher that gives a world of one.
"""

from __future__ import annotations

import importlib
from typing import Any

# Imported on first use: the launcher and the doctor must work even if NumPy or the core does not.
# `__init__.pyi` lists the same names for type checkers.
_MODULES = {
    "sirtaki.core.errors": (
        "CollectiveTimeoutError HorovodInternalError HostsUpdatedInterrupt MismatchError "
        "PeerLostError"
    ),
    "sirtaki.core.operations.objects": "allgather_object broadcast_object",
    "sirtaki.core.tracing.hooks": "OperationEvent add_hooks",
    "sirtaki.core.tracing.spans": "trace",
    "sirtaki.core.world.lifecycle": "init shutdown",
    "sirtaki.core.world.process_sets": "ProcessSet global_process_set",
    "sirtaki.core.operations.reduce_ops": "Adasum Average Max Min Product Sum",
    "sirtaki.core.world.registration": "add_process_set remove_process_set",
    "sirtaki.core.world.state": (
        "cross_rank cross_size is_homogeneous is_initialized local_rank local_size rank size "
        "snapshot start_timeline stop_timeline"
    ),
    "sirtaki.core.world.world": "World",
    "sirtaki.launch.api": "run",
    "sirtaki.numpy.groups": (
        "grouped_allgather grouped_allgather_async grouped_allreduce grouped_allreduce_ "
        "grouped_allreduce_async grouped_allreduce_async_ grouped_reducescatter "
        "grouped_reducescatter_async"
    ),
    "sirtaki.numpy.memory": "empty",
    "sirtaki.numpy.ops": (
        "allgather allgather_async allreduce allreduce_ allreduce_async allreduce_async_ "
        "alltoall alltoall_async barrier broadcast broadcast_ broadcast_async broadcast_async_ "
        "join poll reducescatter reducescatter_async synchronize"
    ),
    "sirtaki.numpy.pairs": "ANY_SOURCE irecv isend recv send",
    "sirtaki.rendezvous.world.placement": "Placement placements",
    "sirtaki.numpy.rooted": "gather gather_async reduce reduce_async scatter scatter_async",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


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


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, "__version__"})


__all__ = sorted(_HOME)
