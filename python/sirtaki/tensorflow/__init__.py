"""Horovod's API for TensorFlow: `import sirtaki.tensorflow as hvd`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sirtaki.tensorflow import requirement as _requirement  # noqa: F401

# isort: split
import tensorflow as _tf

from sirtaki import keras_2 as _keras_2
from sirtaki.tensorflow import checkpoint, elastic, mpi_ops
from sirtaki.tensorflow.checkpoint import guards
from sirtaki.tensorflow.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from sirtaki.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from sirtaki.tensorflow.mpi_ops import *  # noqa: F403
from sirtaki.tensorflow.optimizer import (
    DistributedOptimizer,
)
from sirtaki.tensorflow.tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from sirtaki.tensorflow.util import (
    _executing_eagerly as _executing_eagerly,  # for Horovod's module layout
)
from sirtaki.tensorflow.util import refs_to_vars, vars_to_refs
from sirtaki.tensorflow.v1 import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
)

if TYPE_CHECKING:
    from sirtaki.core import facade
    from sirtaki.core.facade import *  # noqa: F403
    from sirtaki.keras.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "BroadcastGlobalVariablesHook",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "checkpoint",
    "elastic",
    "gpu_available",
    "guards",
    "refs_to_vars",
    "vars_to_refs",
]
__all__ += mpi_ops.__all__
if TYPE_CHECKING:  # mypy follows `__all__` into one module only
    __all__ += facade.__all__

_keras_2.cure_uncaught()


def gpu_available(ext_base_name: str = "", verbose: bool = False) -> bool:
    """Return whether TensorFlow sees a GPU.

    Args:
        ext_base_name, verbose: Accepted and ignored.
    """
    return bool(_tf.config.list_physical_devices("GPU"))


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Return whether a number of ranks is a power of two.

    Args:
        num_rank: The number.
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # a Keras layer, which is slow to import
        from sirtaki.keras.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module 'sirtaki.tensorflow' has no attribute {name!r}")
