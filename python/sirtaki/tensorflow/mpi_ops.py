"""All operations and the basics in one place, where Horovod has them."""

from __future__ import annotations

from sirtaki.core.basics import (
    HorovodBasics,
)
from sirtaki.core.errors import (
    HorovodInternalError,
)
from sirtaki.core.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from sirtaki.core.reduce_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
)
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
from sirtaki.tensorflow.dense_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    join,
)
from sirtaki.tensorflow.functions import (
    broadcast_,
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

_basics = HorovodBasics()

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "_basics",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
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
