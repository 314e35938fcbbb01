"""Horovod's API for Keras, on all its backends: `import sirtaki.keras as hvd`."""

from __future__ import annotations

from sirtaki import keras_2
from sirtaki.core import facade
from sirtaki.core.facade import *  # noqa: F403
from sirtaki.keras import callbacks, checkpoint, elastic, guards
from sirtaki.keras.functions import broadcast_global_variables
from sirtaki.keras.loading import load_model
from sirtaki.keras.optimizer import (
    Compression,
    DistributedOptimizer,
    PartialDistributedOptimizer,
)
from sirtaki.keras.sync_batch_norm import SyncBatchNormalization
from sirtaki.keras.values import allgather, allreduce, broadcast, reducescatter

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "SyncBatchNormalization",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "checkpoint",
    "elastic",
    "guards",
    "load_model",
    "reducescatter",
]
__all__ += facade.__all__

keras_2.cure_uncaught()
