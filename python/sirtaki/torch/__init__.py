"""Horovod's API for PyTorch: `import sirtaki.torch as hvd`."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(
        "sirtaki.torch needs PyTorch 2.4 or later: pip install 'torch>=2.4'"
    ) from error

from sirtaki.core.rate_log import RateLog
from sirtaki.torch import checkpoint, elastic, guards, mpi_ops
from sirtaki.torch.functions import allgather_object, broadcast_object, broadcast_parameters
from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state
from sirtaki.torch.memory import empty
from sirtaki.torch.mpi_ops import *  # noqa: F403
from sirtaki.torch.ops import operators
from sirtaki.torch.optimizer import DistributedOptimizer
from sirtaki.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from sirtaki.core import facade
    from sirtaki.core.facade import *  # noqa: F403

__all__ = [
    "DistributedOptimizer",
    "RateLog",
    "SyncBatchNorm",
    "_check_has_gpu",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "checkpoint",
    "elastic",
    "empty",
    "guards",
    "mpi_ops",
    "operators",
]
__all__ += mpi_ops.__all__
if TYPE_CHECKING:  # mypy follows `__all__` into one module only
    __all__ += facade.__all__


def _check_has_gpu() -> bool:
    return _torch.cuda.is_available()
