"""Checkpoints of pytrees: `hvd.checkpoint.save`, `latest`, `load` and `wait`; single files too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sirtaki.checkpoint import Checkpoint, CheckpointError, Checkpoints
from sirtaki.checkpoint.codec import (
    Array,
    numpy_from_array,
    numpy_to_array,
    python_random_state,
    set_python_random_state,
)
from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state
from sirtaki.jax.arrays import check
from sirtaki.jax.exchange_ops import broadcast_tree

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "latest",
    "load",
    "restore_checkpoint",
    "save",
    "save_checkpoint",
    "wait",
]

Tree = TypeVar("Tree")

_DTYPES = "dtypes"
_PATHS = "paths"


def save_checkpoint(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a pytree of arrays to a file, on rank 0; other ranks go on.

    An interruption leaves either the old file or the new one.

    Args:
        path: The file; one that exists is replaced.
        tree: Parameters, the state of an optimizer, numbers.

    Raises:
        TypeError, ValueError: A leaf is no array or number, or there is no world.
        OSError: The file cannot be written.
    """
    if state.rank() != 0:
        return
    paths, leaves = _flatten(tree)
    arrays = [np.asarray(check("save_checkpoint", leaf)) for leaf in leaves]
    # NumPy's format knows no types but NumPy's own: what is written are bytes.
    content = {str(i): np.frombuffer(a.tobytes(), np.uint8) for i, a in enumerate(arrays)}
    content[_PATHS] = np.array(paths, np.str_)
    content[_DTYPES] = np.array([array.dtype.name for array in arrays], np.str_)
    new = Path(f"{os.fspath(path)}.new")
    with new.open("wb") as file:
        np.savez(file, **content)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def restore_checkpoint(path: str | os.PathLike[str], target: Tree) -> Tree:
    """Return, on every rank, what rank 0 reads from a checkpoint, or else rank 0's `target`.

    So a script that begins with this call continues from a checkpoint if there is one, and
    otherwise begins with equal parameters on all ranks.

    Args:
        path: The file that `save_checkpoint` wrote; only rank 0 looks for it.
        target: A tree of the same structure, shapes and dtypes, on all ranks.

    Raises:
        ValueError: The file is no checkpoint of such a tree; on all ranks.
        HorovodInternalError: A rank was lost.
    """
    failure: Exception | None = None
    tree = target
    if state.rank() == 0 and Path(path).exists():
        try:
            tree = _read(path, target)
        except Exception as error:
            failure = ValueError(f"{os.fspath(path)}: {error}")
    failure = broadcast_object(failure, name="restore_checkpoint")
    if failure is not None:
        raise failure
    return broadcast_tree(tree, name="restore_checkpoint")


def _flatten(tree: Any) -> tuple[list[str], list[Any]]:
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path) for path, _ in pairs], [leaf for _, leaf in pairs]


def _read(path: str | os.PathLike[str], target: Tree) -> Tree:
    paths, leaves = _flatten(target)
    with np.load(path, allow_pickle=False) as content:
        written = content[_PATHS].tolist()
        if written != paths:
            changed = sorted(set(written) ^ set(paths)) or paths
            raise ValueError(
                f"the checkpoint has {len(written)} arrays, the target {len(paths)}; one that "
                f"only one of them has: {changed[0]}"
            )
        dtypes = content[_DTYPES].tolist()
        restored = [
            _leaf(content[str(i)], dtypes[i], paths[i], leaf) for i, leaf in enumerate(leaves)
        ]
    result: Tree = jax.tree.unflatten(jax.tree.structure(target), restored)
    return result


def _leaf(data: Any, dtype: str, path: str, like: Any) -> jax.Array:
    array = jnp.asarray(like)
    if dtype != array.dtype.name or data.nbytes != array.nbytes:
        raise ValueError(
            f"{path} was written as {data.nbytes} bytes of {dtype}, the target is {array.dtype} of "
            f"shape {array.shape}"
        )
    return jnp.asarray(data.view(array.dtype).reshape(array.shape))


_LEAVES, _STRUCTURE = "leaves", "structure"


class _Codec:
    """See `sirtaki.checkpoint.Codec`."""

    framework = "jax"

    def capture(self, value: Any) -> Any:
        """Return a pytree's leaves and how they hang together."""
        leaves, structure = jax.tree_util.tree_flatten(value)
        if _is_plain(value):
            return value
        return {_LEAVES: leaves, _STRUCTURE: str(structure)}

    def restore(self, value: Any, tree: Any) -> Any:
        """Return a tree like `value` with the leaves that were saved."""
        if _is_plain(value):
            return tree
        _, structure = jax.tree_util.tree_flatten(value)
        if str(structure) != tree[_STRUCTURE]:
            raise ValueError(f"the tree saved is {tree[_STRUCTURE]}, that of the state {structure}")
        return jax.tree_util.tree_unflatten(structure, tree[_LEAVES])

    def to_array(self, value: Any) -> Array | None:
        """Take JAX's arrays, keys of random numbers too, and NumPy's."""
        if not isinstance(value, jax.Array):
            return numpy_to_array(value)
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            data = np.ascontiguousarray(jax.random.key_data(value))
            kind = f"key:{jax.random.key_impl(value)}"
        else:
            data, kind = np.ascontiguousarray(value), "jax"
        return kind, str(data.dtype), data.shape, data.reshape(-1).view(np.uint8)

    def from_array(self, kind: str, dtype: str, shape: tuple[int, ...], data: bytearray) -> Any:
        """Return a JAX array or what NumPy had."""
        if kind == "jax" or kind.startswith("key:"):
            found = jnp.asarray(np.frombuffer(data, jnp.dtype(dtype)).reshape(shape))
            key = kind.partition(":")[2]
            return jax.random.wrap_key_data(found, impl=key) if key else found
        return numpy_from_array(kind, dtype, shape, data)

    def members(self, state: Any) -> dict[str, Any]:
        """Return what a `JaxState` looks after."""
        names = [*getattr(state, "_saved_trees", ()), *state._saved_state]
        return {name: getattr(state, name) for name in names}

    def assign(self, state: Any, values: Mapping[str, Any]) -> None:
        """Set the values, and commit without looking for other hosts."""
        for name, value in values.items():
            setattr(state, name, value)
        state.save()

    def random_state(self) -> dict[str, Any]:
        """Return the state of Python's and NumPy's generators; JAX's keys are the program's."""
        return python_random_state()

    def set_random_state(self, tree: Mapping[str, Any]) -> None:
        """Set them."""
        set_python_random_state(tree)


def _is_plain(value: Any) -> bool:
    """Whether a value consists of containers that a checkpoint knows, and of leaves."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(map(_is_plain, value))
    return value is None or jax.tree_util.all_leaves([value])


_checkpoints = Checkpoints(_Codec())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait
