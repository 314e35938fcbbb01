"""Horovod's API for PyTorch: `import sirtaki.torch as hvd`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(
        "sirtaki.torch needs PyTorch 2.4 or later: pip install 'torch>=2.4'"
    ) from error

from sirtaki.core.elastic import prepare as _prepare
from sirtaki.importing import uncollected

with uncollected():
    from sirtaki.torch import mpi_ops
    from sirtaki.torch.mpi_ops import *  # noqa: F403

if TYPE_CHECKING:
    from sirtaki.core import facade
    from sirtaki.core.facade import *  # noqa: F403
    from sirtaki.core.rate_log import RateLog
    from sirtaki.torch import checkpoint, elastic, guards
    from sirtaki.torch.functions import allgather_object, broadcast_object, broadcast_parameters
    from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state
    from sirtaki.torch.memory import empty
    from sirtaki.torch.ops import operators
    from sirtaki.torch.optimizer import DistributedOptimizer
    from sirtaki.torch.outer.optimizer import DiLoCo, LocalSGD
    from sirtaki.torch.sync_batch_norm import SyncBatchNorm

# Imported on first use, so that training processes start fast.
_MODULES = {
    "checkpoint": "sirtaki.torch.checkpoint",
    "elastic": "sirtaki.torch.elastic",
    "functions": "sirtaki.torch.functions",
    "gradients": "sirtaki.torch.gradients",
    "guards": "sirtaki.torch.guards",
    "memory": "sirtaki.torch.memory",
    "operators": "sirtaki.torch.ops.operators",
    "optimizer": "sirtaki.torch.optimizer",
    "serialization": "sirtaki.torch.gradients.optimizer_state",
    "sync_batch_norm": "sirtaki.torch.sync_batch_norm",
}
_HOME = {
    "DiLoCo": "sirtaki.torch.outer.optimizer",
    "DistributedOptimizer": "sirtaki.torch.optimizer",
    "LocalSGD": "sirtaki.torch.outer.optimizer",
    "RateLog": "sirtaki.core.rate_log",
    "SyncBatchNorm": "sirtaki.torch.sync_batch_norm",
    "allgather_object": "sirtaki.torch.functions",
    "broadcast_object": "sirtaki.torch.functions",
    "broadcast_optimizer_state": "sirtaki.torch.gradients.optimizer_state",
    "broadcast_parameters": "sirtaki.torch.functions",
    "empty": "sirtaki.torch.memory",
}


def _load_optimizers() -> None:
    """Load the 800 modules that PyTorch needs for a process's first optimizer."""
    _torch.optim.SGD([_torch.zeros(1)], lr=0.0)


_prepare(_load_optimizers)


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_HOME})


__all__ = [
    "DiLoCo",
    "DistributedOptimizer",
    "LocalSGD",
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
