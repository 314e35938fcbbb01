"""The framework-independent names, for every framework's module."""

from __future__ import annotations

from sirtaki.core.errors import (
    CollectiveTimeoutError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MismatchError,
    PeerLostError,
)
from sirtaki.core.operations.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from sirtaki.core.tracing.hooks import add_hooks
from sirtaki.core.tracing.spans import trace
from sirtaki.core.world.lifecycle import init, shutdown
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.core.world.registration import add_process_set, remove_process_set
from sirtaki.core.world.state import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    size,
    start_timeline,
    stop_timeline,
)

__all__ = [
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
    "add_hooks",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "trace",
]
