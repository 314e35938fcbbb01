"""Checkpoints of pytrees, saved and loaded by all ranks."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sirtaki.jax as hvd

Moments = namedtuple("Moments", ["count", "mean"])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The folder of rank 0."""
    found: str = hvd.broadcast_object(str(tmp_path), 0)
    return found


def tree() -> dict[str, object]:
    return {
        "params": {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(2, jnp.bfloat16)},
        "opt": Moments(jnp.int32(3), [jnp.zeros(2)]),
        "key": jax.random.key(7),
        "epoch": 4,
    }


@pytest.mark.parametrize("sharded", [False, True])
def test_trees_come_back_as_they_were(folder: str, sharded: bool) -> None:
    saved = tree()
    hvd.checkpoint.save(folder, saved, step=2, async_=False, sharded=sharded)
    like = {**jax.tree_util.tree_map(lambda leaf: leaf, tree()), "epoch": 0}
    loaded = hvd.checkpoint.load(folder, like)
    assert loaded["epoch"] == 4
    assert isinstance(loaded["opt"], Moments)
    assert loaded["params"]["b"].dtype == jnp.bfloat16
    assert jax.random.uniform(loaded["key"]) == jax.random.uniform(jax.random.key(7))
    for name in ("params", "opt"):
        jax.tree_util.tree_map(np.testing.assert_array_equal, saved[name], loaded[name])


def test_a_tree_of_another_shape_is_an_error(folder: str) -> None:
    hvd.checkpoint.save(folder, {"opt": tree()["opt"]}, step=1, async_=False)
    with pytest.raises(hvd.checkpoint.CheckpointError, match="the tree saved is"):
        hvd.checkpoint.load(folder, {"opt": Moments(jnp.int32(3), [jnp.zeros(2), jnp.zeros(1)])})


def test_an_elastic_state_is_loaded_and_committed(folder: str) -> None:
    state = hvd.elastic.JaxState(params=tree()["params"], batch=5)
    hvd.checkpoint.save(folder, state, step=1, async_=False)
    again = hvd.elastic.JaxState(
        params=jax.tree_util.tree_map(jnp.zeros_like, tree()["params"]), batch=0
    )
    hvd.checkpoint.load(folder, again)
    again.restore()
    assert again.batch == 5
    assert again.params["w"][1, 2] == 5
