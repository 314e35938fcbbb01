"""Horovod's API for TensorFlow: `import sirtaki.tensorflow as hvd`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sirtaki.tensorflow import requirement as _requirement  # noqa: F401

# isort: split
import tensorflow as _tf

from sirtaki.core.errors import (
    CollectiveTimeoutError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MismatchError,
    PeerLostError,
)
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
from sirtaki.tensorflow.collectives import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from sirtaki.tensorflow.compression import (
    Compression,
)
from sirtaki.tensorflow.functions import (
    allgather_object,
    broadcast_,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from sirtaki.tensorflow.graph_values import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from sirtaki.tensorflow.handles import (
    allgather_async,
    allreduce_async,
    alltoall_async,
    broadcast_async,
    poll,
    reducescatter_async,
    synchronize,
)
from sirtaki.tensorflow.mpi_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    join,
)
from sirtaki.tensorflow.optimizer import (
    DistributedOptimizer,
)
from sirtaki.tensorflow.tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from sirtaki.tensorflow.v1 import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
)

if TYPE_CHECKING:
    from sirtaki.keras.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "CollectiveTimeoutError",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "MismatchError",
    "PartialDistributedGradientTape",
    "PeerLostError",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


def gpu_available(ext_base_name: str = "", verbose: bool = False) -> bool:
    """Tell whether TensorFlow sees a GPU; the arguments are accepted and ignored."""
    return bool(_tf.config.list_physical_devices("GPU"))


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Tell whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # a layer of Keras, which takes long to import
        from sirtaki.keras.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module 'sirtaki.tensorflow' has no attribute {name!r}")
