"""Elastic training with JAX: states of pytrees; see `sirtaki.torch.elastic` for PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state as world_state
from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run_fn, sample_seed
from sirtaki.elastic.run import join_next_world
from sirtaki.elastic.state import require_names
from sirtaki.jax.exchange_ops import broadcast_tree

__all__ = [
    "HostsUpdatedInterrupt",
    "JaxState",
    "ObjectState",
    "State",
    "run",
    "run_fn",
    "sample_seed",
]

T = TypeVar("T")


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Make a training function outlive lost processes; a decorator.

    Args:
        func: Its first argument is a `State`. It is called again in each new world, with what was
            compiled for the old one forgotten.

    Returns:
        A function with the same arguments; see `sirtaki.elastic.run_fn`.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    join_next_world()
    # What was compiled has the size of the old world in it.
    jax.clear_caches()


class JaxState(ObjectState):
    """State of pytrees and other objects.

    Args:
        kwargs: Become attributes. Those that are pytrees of arrays alone are kept as they are, for
            arrays do not change, and are broadcast as arrays; others as by `ObjectState`.
    """

    def __init__(self, **kwargs: Any) -> None:
        trees = {name: value for name, value in kwargs.items() if _is_tree(value)}
        self._saved_trees = trees
        for name, value in trees.items():
            setattr(self, name, value)
        others = {name: value for name, value in kwargs.items() if name not in trees}
        super().__init__(broadcast_object, world_state.rank, **others)

    def save(self) -> None:
        """Keep the arrays of now, without copying them, and copies of the other objects."""
        self._saved_trees = {name: getattr(self, name) for name in self._saved_trees}
        super().save()

    def restore(self) -> None:
        """Return to what was saved last."""
        for name, value in self._saved_trees.items():
            setattr(self, name, value)
        super().restore()

    def sync(self) -> None:
        """Give all ranks the state of rank 0."""
        for name in self._saved_trees:
            setattr(self, name, broadcast_tree(getattr(self, name), root_rank=0))
        super().sync()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves: all of the state as it is, not as last committed."""
        trees = {name: getattr(self, name) for name in self._saved_trees}
        return super().state_dict() | trees

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned, and commit it."""
        require_names([*self._saved_state, *self._saved_trees], state_dict)
        for name in self._saved_trees:
            setattr(self, name, state_dict[name])
        super().load_state_dict({name: state_dict[name] for name in self._saved_state})


def _is_tree(value: Any) -> bool:
    leaves = jax.tree_util.tree_leaves(value)
    return bool(leaves) and all(isinstance(leaf, jax.Array) for leaf in leaves)
