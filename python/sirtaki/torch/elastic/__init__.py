"""Elastic training with PyTorch, mirrors ``horovod.torch.elastic``."""

from __future__ import annotations

from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run, run_fn, sample_seed
from sirtaki.torch.elastic.handlers import StateHandler
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.elastic.state import (
    TorchState,
    get_handler_registry,
    set_handler_registry,
)
from sirtaki.torch.reproducible.batches import ConstantBatchSampler
from sirtaki.torch.reproducible.parts import Part

__all__ = [
    "ConstantBatchSampler",
    "ElasticSampler",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "Part",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "run_fn",
    "sample_seed",
    "set_handler_registry",
]
