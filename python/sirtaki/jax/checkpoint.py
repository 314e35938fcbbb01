"""Checkpoints that rank 0 writes and reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state
from sirtaki.jax.arrays import check
from sirtaki.jax.exchange_ops import broadcast_tree

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
