"""All operations and the basics in one module, as in Horovod."""

from __future__ import annotations

from sirtaki.core import facade
from sirtaki.core.basics import (
    HorovodBasics,
)
from sirtaki.core.facade import *  # noqa: F403
from sirtaki.tensorflow.compression import (
    Compression,
)
from sirtaki.tensorflow.functions import (
    broadcast_,
)
from sirtaki.tensorflow.ops.collectives import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from sirtaki.tensorflow.ops.dense import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    join,
)
from sirtaki.tensorflow.ops.graph_values import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from sirtaki.tensorflow.ops.handles import (
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
    "Compression",
    "_basics",
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
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "poll",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "reducescatter_async",
    "size_op",
    "synchronize",
]
__all__ += facade.__all__
