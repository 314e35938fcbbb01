"""Horovod's API for JAX: `import sirtaki.jax as hvd`."""

from __future__ import annotations

from sirtaki.jax import requirement as _requirement  # noqa: F401

# isort: split
from sirtaki.core import facade
from sirtaki.core.facade import *  # noqa: F403
from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.jax import checkpoint, elastic
from sirtaki.jax import primitive as _primitive
from sirtaki.jax.allreduce_ops import allreduce, allreduce_tree, grouped_allreduce
from sirtaki.jax.arrays import Compression
from sirtaki.jax.checkpoint import guards, restore_checkpoint, save_checkpoint
from sirtaki.jax.exchange_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_tree,
    grouped_allgather,
)
from sirtaki.jax.optimizer import DistributedOptimizer
from sirtaki.jax.outer import DiLoCo, LocalSGD
from sirtaki.jax.reducescatter_ops import grouped_reducescatter, reducescatter

_primitive.register()

__all__ = [
    "Compression",
    "DiLoCo",
    "DistributedOptimizer",
    "LocalSGD",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_tree",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_tree",
    "checkpoint",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "guards",
    "reducescatter",
    "restore_checkpoint",
    "save_checkpoint",
]
__all__ += facade.__all__
