"""Checkpoints with JAX: `hvd.checkpoint`; and single files that rank 0 writes and reads."""

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
from sirtaki.jax.arrays import check
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


class JaxFramework(Framework):
    """JAX's arrays and pytrees."""

    name = "JAX"

    def capture(self, value: Any) -> Any:
        """Return the leaves of a pytree by their paths, and what has `state_dict` as its own."""
        if hasattr(value, "state_dict"):
            return {name: self.capture(each) for name, each in value.state_dict().items()}
        paths, leaves = _flatten(value)
        return dict(zip(paths, leaves, strict=True))

    def restore(self, value: Any, tree: Any) -> Any:
        """Return a pytree of the structure of `value`, whose arrays are of the same types."""
        if hasattr(value, "load_state_dict"):
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
            CheckpointError: This process has only a part of the array.
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
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            kind, leaf = f"key:{jax.random.key_impl(leaf)}", jax.random.key_data(leaf)
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
