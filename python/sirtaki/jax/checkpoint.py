"""Checkpoints with JAX (`hvd.checkpoint`), and single files written and read by rank 0."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sirtaki.checkpoint import Array, CheckpointError, Checkpoints, Framework, Guards, Loaded
from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state
from sirtaki.jax.arrays import check, is_key, like, numbers_of
from sirtaki.jax.exchange_ops import broadcast_tree

__all__ = [
    "CheckpointError",
    "Loaded",
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
    """Write a pytree of arrays to a file, on rank 0; other ranks return at once.

    An interruption leaves either the old file or the new one.

    Args:
        path: The file; an existing one is replaced.
        tree: Parameters, optimizer state, numbers.

    Raises:
        TypeError, ValueError: A leaf is neither array nor number, or there is no world.
        OSError: The file cannot be written.
    """
    if state.rank() != 0:
        return
    paths, leaves = _flatten(tree)
    arrays = [np.asarray(check("save_checkpoint", numbers_of(leaf))) for leaf in leaves]
    # NumPy's format supports only NumPy's types, so the data is written as bytes.
    content = {str(i): np.frombuffer(a.tobytes(), np.uint8) for i, a in enumerate(arrays)}
    content[_PATHS] = np.array(paths, np.str_)
    content[_DTYPES] = np.array(list(map(_kind, leaves, arrays)), np.str_)
    new = Path(f"{os.fspath(path)}.new")
    new.unlink(missing_ok=True)
    with new.open("xb") as file:  # never follows another user's link
        np.savez(file, **content)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def restore_checkpoint(path: str | os.PathLike[str], target: Tree) -> Tree:
    """Return, on every rank, the checkpoint that rank 0 reads, or rank 0's `target`.

    A script that begins with this call continues from a checkpoint if one exists, and otherwise
    starts with equal parameters on all ranks.

    Args:
        path: The file that `save_checkpoint` wrote; only rank 0 looks for it.
        target: A tree of the same structure, shapes and dtypes, on all ranks.

    Raises:
        ValueError: The file is no checkpoint of such a tree; raised on all ranks.
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


def _kind(leaf: Any, array: Any) -> str:
    return f"key:{jax.random.key_impl(leaf)}" if is_key(leaf) else str(array.dtype.name)


def _leaf(data: Any, dtype: str, path: str, target: Any) -> jax.Array:
    array = jnp.asarray(numbers_of(target))
    if dtype != _kind(target, array) or data.nbytes != array.nbytes:
        raise ValueError(
            f"{path} was written as {data.nbytes} bytes of {dtype}, the target is "
            f"{_kind(target, array)} of shape {array.shape}"
        )
    found: jax.Array = like(target, jnp.asarray(data.view(array.dtype).reshape(array.shape)))
    return found


class JaxFramework(Framework):
    """JAX's arrays and pytrees."""

    name = "JAX"

    def capture(self, value: Any) -> Any:
        """Return the leaves of a pytree by path; objects with `state_dict` use their own."""
        # Checked on the class: an `nnx.Rngs` returns a random stream for every attribute.
        if hasattr(type(value), "state_dict"):
            return {name: self.capture(each) for name, each in value.state_dict().items()}
        paths, leaves = _flatten(value)
        return dict(zip(paths, leaves, strict=True))

    def restore(self, value: Any, tree: Any) -> Any:
        """Return a pytree with the structure of `value` and arrays of the same types."""
        if hasattr(type(value), "load_state_dict"):
            mine = value.state_dict()
            if mine.keys() != tree.keys():
                raise ValueError(f"only one of both has {sorted(mine.keys() ^ tree.keys())}")
            value.load_state_dict({name: self.restore(mine[name], tree[name]) for name in mine})
            return value
        paths, leaves = _flatten(value)
        if paths != list(tree):
            different = sorted(set(paths) ^ set(tree)) or paths
            raise ValueError(f"only one of both has {different[0]}")
        for path, leaf in zip(paths, leaves, strict=True):
            found, expected = _described(tree[path]), _described(leaf)
            if found != expected:
                raise ValueError(f"{path} was saved as {found}, here it is {expected}")
        return jax.tree.unflatten(jax.tree.structure(value), list(tree.values()))

    def is_array(self, leaf: Any) -> bool:
        """See `Framework`.

        Raises:
            CheckpointError: This process holds only a part of the array.
        """
        if not isinstance(leaf, jax.Array):
            return super().is_array(leaf)
        if not leaf.is_fully_addressable:
            raise CheckpointError(
                "an array that lies on several processes can be no part of a checkpoint: use Orbax"
            )
        return True

    def is_finite(self, leaf: Any) -> bool:
        """See `Framework`."""
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return True
        return bool(jnp.isfinite(leaf).all())

    def to_host(self, leaf: Any) -> Array:
        """See `Framework`."""
        if not isinstance(leaf, jax.Array):
            return super().to_host(leaf)
        kind = "jax"
        if is_key(leaf):
            kind, leaf = _kind(leaf, leaf), numbers_of(leaf)
        array = np.ascontiguousarray(leaf)
        return Array(kind, array.dtype.name, leaf.shape, array.reshape(-1).view(np.uint8))

    def from_host(self, array: Array) -> Any:
        """See `Framework`."""
        kind, _, key = array.kind.partition(":")
        if kind not in ("jax", "key"):
            return super().from_host(array)
        found = jnp.asarray(array.data.view(jnp.dtype(array.dtype)).reshape(array.shape))
        return jax.random.wrap_key_data(found, impl=key) if key else found


def _described(leaf: Any) -> str:
    is_array = isinstance(leaf, jax.Array)
    return f"{leaf.dtype} of shape {leaf.shape}" if is_array else type(leaf).__name__


_checkpoints = Checkpoints(JaxFramework())
guards = Guards(JaxFramework())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait
