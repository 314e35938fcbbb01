"""Elastic training with PyTorch, mirrors ``horovod.torch.elastic``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run_fn
from sirtaki.elastic.run import join_next_world
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.elastic.state import (
    StateHandler,
    TorchState,
    get_handler_registry,
    set_handler_registry,
)

__all__ = [
    "ElasticSampler",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "run_fn",
    "set_handler_registry",
]

T = TypeVar("T")


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Make a training function outlive lost processes; a decorator.

    Args:
        func: Its first argument is a `State`, whose ``commit()`` it calls now and then. It is
            called again in each new world, and goes on from what was committed last.

    Returns:
        A function with the same arguments; see `sirtaki.elastic.run_fn`.
    """
    return run_fn(func, join_next_world)
