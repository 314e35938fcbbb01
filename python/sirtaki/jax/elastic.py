"""Elastic training with JAX: states of pytrees; see `sirtaki.torch.elastic` for PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state as world_state
from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run_fn, sample_seed
from sirtaki.elastic.run import is_loss, join_next_world
from sirtaki.elastic.state import Version, require_names
from sirtaki.jax import internals
from sirtaki.jax.arrays import numbers_of
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
world_state.watch_tracing(internals.under_transformation)


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Make a training function survive lost processes; a decorator.

    Args:
        func: Its first argument is a `State`. It is called again in each new world, for which
            functions are compiled again if one of them has read the world's size or a rank, or if
            the state has reset callbacks.

    Returns:
        A function with the same arguments; see `sirtaki.elastic.run_fn`.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    join_next_world()
    if world_state.functions_depend_on_world():
        jax.clear_caches()


class JaxState(ObjectState):
    """State of pytrees and other objects.

    Args:
        every_step: Whether the state also saves itself once in each step: just before one of its
            pytrees is assigned again. Call `commit` after a step, or only
            `check_host_updates`, which lets processes come and go.
        kwargs: Become attributes. Pytrees of arrays alone are kept without a copy, since arrays do
            not change, and are broadcast as arrays; other objects as by `ObjectState`.
    """

    def __init__(self, every_step: bool = False, **kwargs: Any) -> None:
        trees = {name: value for name, value in kwargs.items() if _is_tree(value)}
        for name, value in trees.items():
            object.__setattr__(self, name, value)
        # Newest last. JAX computes in the background, so the newest may still fail.
        self._saved: list[_Saved] = []
        self._names = tuple(trees)
        self._assigned: set[str] = set()
        self._saves_itself = every_step
        others = {name: value for name, value in kwargs.items() if name not in trees}
        super().__init__(broadcast_object, world_state.rank, **others)
        self.save()

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_saves_itself") and name in self._names:
            if name in self._assigned:  # the next step begins
                self._commits += 1
                self.save()
            self._assigned.add(name)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Keep the current arrays, without copies, and copies of the other objects."""
        super().save()
        self._assigned.clear()
        trees = {name: _copied(getattr(self, name)) for name in self._names}
        self._saved.append(_Saved(self._commits, trees, self._saved_state))
        while len(self._saved) > 1 and self._saved[1].is_whole():
            del self._saved[0]

    def restore(self) -> None:
        """Restore the last saved state that was computed without an error.

        Raises:
            ValueError: Arrays of the state were donated, and so are lost.
        """
        while not self._saved[-1].can_be_used() and len(self._saved) > 1:
            self._saved.pop()
        last = self._saved[-1]
        if not last.can_be_used():
            raise ValueError(
                "arrays of the JaxState have failed or are gone: where a jitted function donates "
                "the arguments that come from a state (donate_argnums), nothing is left of them "
                "after a loss"
            )
        self._assigned.clear()
        for name, value in last.trees.items():
            object.__setattr__(self, name, _copied(value))
        self._saved_state = last.objects
        self._commits = last.commits
        super().restore()

    def _sync_from(self, root: int, version: Version) -> None:
        for name in self._names:
            object.__setattr__(self, name, broadcast_tree(getattr(self, name), root_rank=root))
        super()._sync_from(root, version)

    def state_dict(self) -> dict[str, Any]:
        """Return the data for a checkpoint: the current state, not the last committed one."""
        trees = {name: getattr(self, name) for name in self._names}
        return super().state_dict() | trees

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`, and commit it."""
        require_names([*self._saved_state, *self._names], state_dict)
        for name in self._names:
            setattr(self, name, state_dict[name])
        super().load_state_dict({name: state_dict[name] for name in self._saved_state})


class _Saved(NamedTuple):
    """A saved state. commits: the number of commits before it."""

    commits: int
    trees: dict[str, Any]
    objects: dict[str, Any]

    def _leaves(self) -> list[Any]:
        return list(jax.tree_util.tree_leaves(self.trees))

    def is_whole(self) -> bool:
        """Return, without waiting, whether all arrays have been computed without an error."""
        leaves = self._leaves()
        if not all(leaf.is_deleted() or numbers_of(leaf).is_ready() for leaf in leaves):
            return False
        return self.can_be_used()

    def can_be_used(self) -> bool:
        """Wait for the arrays; return whether they are available."""
        leaves = self._leaves()
        if any(leaf.is_deleted() for leaf in leaves):
            return False
        try:
            jax.block_until_ready(leaves)
        except Exception as error:
            if not is_loss(error):
                raise
            return False
        return True


def _copied(tree: Any) -> Any:
    """Copy the containers of the arrays: dictionaries, lists and `nnx.Rngs` are mutable."""
    return jax.tree_util.tree_map(lambda leaf: leaf, tree)


def _is_tree(value: Any) -> bool:
    leaves = jax.tree_util.tree_leaves(value)
    return bool(leaves) and all(isinstance(leaf, jax.Array) for leaf in leaves)
