"""Horovod's API for JAX: `import sirtaki.jax as hvd`."""

from __future__ import annotations

from sirtaki.jax import requirement as _requirement  # noqa: F401

# isort: split
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
from sirtaki.core.state import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
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
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from sirtaki.jax import library as _library
from sirtaki.jax.allreduce_ops import allreduce, allreduce_tree, grouped_allreduce
from sirtaki.jax.checkpoint import restore_checkpoint, save_checkpoint
from sirtaki.jax.compression import Compression
from sirtaki.jax.exchange_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_tree,
    grouped_allgather,
)
from sirtaki.jax.optimizer import DistributedOptimizer
from sirtaki.jax.reducescatter_ops import grouped_reducescatter, reducescatter

_library.register()

__all__ = [
    "Adasum",
    "Average",
    "CollectiveTimeoutError",
    "Compression",
    "DistributedOptimizer",
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
    "allgather_object",
    "allreduce",
    "allreduce_tree",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_tree",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
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
    "reducescatter",
    "remove_process_set",
    "restore_checkpoint",
    "rocm_built",
    "save_checkpoint",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
